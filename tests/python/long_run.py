"""What takes too long for every day: a million small transfers over each transport, with flat memory.

usage: long_run.py [COUNT [TRANSPORT...]]
"""

import asyncio
import gc
import pathlib
import sys
import time

import fairlead

AT_A_TIME = 1000
GROWS_BY = 4096  # KiB, at most, from the first tenth to the last; a transfer that left 16 bytes behind would take 14,000


def resident():
    """KiB that this process has in memory."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise OSError("the system does not say")


async def many(count, transport):
    """Awaits `count` transfers of 64 bytes, each of an array that is registered for it alone or of pool memory in turn."""
    with fairlead.Engine(listen="127.0.0.1:0", transport=transport) as there, fairlead.Engine(transport=transport) as here:
        there.publish("target", there.allocate(64 * AT_A_TIME), "rw")
        peer = await here.connect(there.listen_address).ready(60)
        target = await peer.find("target", 60)
        slots = [target.slice(64 * i, 64) for i in range(AT_A_TIME)]
        memory = here.allocate(64 * AT_A_TIME)
        blocks = [memory.slice(64 * i, 64) for i in range(AT_A_TIME)]
        seen, done, begin = [], 0, time.monotonic()
        while done < count:
            turn = done // AT_A_TIME % 4
            local = blocks if turn % 2 else [bytearray([i % 256]) * 64 for i in range(AT_A_TIME)]
            await asyncio.gather(*map(peer.read if turn == 2 else peer.write, local, slots))
            done += AT_A_TIME
            if done % (count // 10) == 0:
                gc.collect()
                seen.append(resident())
        print(f"{peer.transport}: {done} transfers, {done / (time.monotonic() - begin):.0f} a second, "
              f"{seen[0]} KiB after the first tenth, {seen[-1]} KiB after the last", flush=True)
        if peer._waits._waiters:
            sys.exit(f"{transport}: futures are left")
        # The first tenth may fill caches; what grows with each transfer grows by its share from there on.
        if seen[-1] > seen[0] + GROWS_BY:
            sys.exit(f"{transport}: memory grew by {seen[-1] - seen[0]} KiB; {GROWS_BY} may be: {seen}")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    if count < 10 * AT_A_TIME or count % (10 * AT_A_TIME):
        sys.exit(f"COUNT is a multiple of {10 * AT_A_TIME}, at least once that: {count} is not")
    for transport in sys.argv[2:] or ("tcp", "shm", "verbs:soft0"):
        asyncio.run(many(count, transport))


main()
