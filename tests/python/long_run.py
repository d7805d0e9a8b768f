"""What takes too long for every day: a million small transfers with flat memory, and a gigabyte beside the program.

usage: long_run.py transfers [COUNT] | bandwidth FAIRLEAD
"""

import asyncio
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import fairlead

AT_A_TIME = 1000


def resident():
    """KiB that this process has in memory."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise OSError("the system does not say")


async def many(count):
    """Awaits `count` transfers of 64 bytes, each of an array that is registered for it alone or of pool memory in turn."""
    with fairlead.Engine(listen="127.0.0.1:0", transport="tcp") as there, fairlead.Engine(transport="tcp") as here:
        there.publish("target", there.allocate(64 * AT_A_TIME), "w")
        peer = await here.connect(there.listen_address).ready(60)
        target = await peer.find("target", 60)
        slots = [target.slice(64 * i, 64) for i in range(AT_A_TIME)]
        memory = here.allocate(64 * AT_A_TIME)
        blocks = [memory.slice(64 * i, 64) for i in range(AT_A_TIME)]
        seen, done, begin = [], 0, time.monotonic()
        while done < count:
            local = blocks if done // AT_A_TIME % 2 else [bytes([i % 256]) * 64 for i in range(AT_A_TIME)]
            await asyncio.gather(*map(peer.write, local, slots))
            done += AT_A_TIME
            if done % (count // 10) == 0:
                gc.collect()
                seen.append(resident())
                print(f"{done} transfers, {seen[-1]} KiB", flush=True)
        print(f"{count / (time.monotonic() - begin):.0f} transfers/s")
        if peer._waits._waiters:
            sys.exit("futures are left")
        # The first tenth may fill caches; what grows with each transfer grows by its share from there on.
        if seen[-1] > seen[0] + max(4096, seen[0] // 20):
            sys.exit(f"memory grew from {seen[0]} to {seen[-1]} KiB")


def bandwidth(program, rounds=5, nbytes=1 << 30):
    """Pushes 1 GiB by the program and from an array, in turn, to one server; compares the best of each."""
    import numpy

    def best(figures):
        return max(figures) / 1e9

    folder = tempfile.TemporaryDirectory()
    here = pathlib.Path(folder.name)
    array = numpy.arange(nbytes // 8, dtype="float64")
    header = json.dumps({"array": {"dtype": "F64", "shape": [nbytes // 8], "data_offsets": [0, nbytes]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(here / "array.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.write(array.data)
    with subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--ready-file", here / "ready"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        while not ((here / "ready").exists() and (here / "ready").read_text()):
            time.sleep(0.05)
        address = json.loads((here / "ready").read_text())["listen"]
        ours, theirs = [], []
        for _ in range(rounds):
            subprocess.run([program, "push", here / "array.safetensors", address, "--transport", "tcp", "--checksum", "off",
                            "--json", here / "push.json"], check=True, stdout=subprocess.DEVNULL)
            theirs.append(json.loads((here / "push.json").read_text())["bytes_per_second"])
            with fairlead.Engine(transport="tcp") as engine:
                ours.append(pushed(engine, address, array))
            print(f"the program {theirs[-1] / 1e9:.2f} GB/s, Python {ours[-1] / 1e9:.2f} GB/s", flush=True)
        server.terminate()
    folder.cleanup()
    print(f"best: the program {best(theirs):.2f} GB/s, Python {best(ours):.2f} GB/s, {best(ours) / best(theirs):.3f} of it")


def pushed(engine, address, array):
    """Bytes a second of the writes of a push, as the program counts them."""
    spent = []
    original = fairlead.models._Moves

    class Timed(original):
        def __init__(self, talk):
            super().__init__(talk)
            spent.append(time.perf_counter())

        def finish(self):
            super().finish()
            spent.append(time.perf_counter())

    fairlead.models._Moves = Timed
    try:
        fairlead.push_state_dict(engine, address, "array", {"array": array}, checksum=False)
    finally:
        fairlead.models._Moves = original
    return array.nbytes / (spent[1] - spent[0])


if __name__ == "__main__":
    if sys.argv[1] == "transfers":
        asyncio.run(many(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000))
    else:
        bandwidth(sys.argv[2])
