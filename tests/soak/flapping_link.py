#!/usr/bin/env python3
"""Measures what a session carries before and after its link was down for a moment.

  tests/soak/flapping_link.py [--rounds 10] [--seconds 2] [--down 1] [--transport verbs:soft0,tcp] [--minimum 0.97]
                              [--python build/release/python]

Two hosts with a link between them are network namespaces of this program's own; where they cannot be made, it is skipped
(exit code 77). One writes to the other, sixteen WRITEs of 1 MiB at a time, in one session for all of it. Each round counts
what arrived for so many seconds, takes the link down for --down seconds, waits for two seconds and until half as much
arrives again, and counts once more. Prints every round and the median of the rounds' ratios; exit code 1 if that is below
--minimum, or if a transfer fails.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
from namespaces import Host, enter, join, run  # noqa: E402

HERE, THERE = "10.96.0.1", "10.96.0.2"
WIRE = "wire"
BYTES, AT_A_TIME = 1 << 20, 16


def serve(transport):
    """The end that is written to, until its input ends."""
    import fairlead
    with fairlead.Engine(listen=f"{THERE}:0", transport=transport, verbs_soft_address=THERE) as engine:
        engine.publish("target", engine.allocate(AT_A_TIME * BYTES), "rw")
        print(engine.listen_address, flush=True)
        sys.stdin.read()


class Writer(threading.Thread):
    """Writes until it is told to stop; `error` is why it ended, if it was not."""

    def __init__(self, address, transport):
        super().__init__()
        self.address, self.transport = address, transport
        self.written, self.stopping, self.error = 0, False, None

    def run(self):
        import fairlead
        try:
            with fairlead.Engine(transport=self.transport, verbs_soft_address=HERE) as engine:
                self.write(engine, engine.connect(self.address))
        except fairlead.Error as error:
            self.error = error

    def write(self, engine, peer):
        peer.wait_ready()
        target, memory = peer.lookup("target"), engine.allocate(AT_A_TIME * BYTES)
        pairs = [(memory.slice(at, BYTES), target.slice(at, BYTES)) for at in range(0, AT_A_TIME * BYTES, BYTES)]
        under_way = [peer.write(*pair) for pair in pairs]
        while not self.stopping:
            for i, pair in enumerate(pairs):
                under_way[i].wait()
                self.written += BYTES
                under_way[i] = peer.write(*pair)
        for transfer in under_way:
            transfer.wait()
        print(f"paths that took the place of others: {peer.stats()['recoveries']}")

    def rate(self, seconds):
        """Bytes per second."""
        begin, before = time.monotonic(), self.written
        time.sleep(seconds)
        if not self.is_alive():
            sys.exit(f"flapping_link: a transfer failed: {self.error}")
        return (self.written - before) / (time.monotonic() - begin)


def flap(writer, options):
    """What arrives before and after the link was down, and after how many seconds half of that did."""
    before = writer.rate(options.seconds)
    run("ip", "link", "set", WIRE, "down")
    time.sleep(options.down)
    run("ip", "link", "set", WIRE, "up")
    up = time.monotonic()
    while time.monotonic() - up < 20 and writer.rate(0.1) < before / 2:
        pass
    back = time.monotonic() - up
    time.sleep(2)
    return before, writer.rate(options.seconds), back


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--down", type=float, default=1)
    parser.add_argument("--transport", default="verbs:soft0,tcp")
    parser.add_argument("--minimum", type=float, default=0.97)
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / "build/release/python")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(options.python))
    if options.serve:
        return serve(options.transport)
    enter()
    other = Host()
    run("ip", "link", "set", "lo", "up")
    other.link(WIRE, WIRE)
    for at, address in (((), HERE), (other.at, THERE)):
        run("ip", "link", "set", WIRE, "mtu", "9000", at=at)
        join(address, WIRE, at=at)
    server = subprocess.Popen([*other.at, sys.executable, __file__, "--serve", "--transport", options.transport, "--python",
                               str(options.python)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    writer = Writer(server.stdout.readline().strip(), options.transport)
    writer.start()
    ratios = []
    try:
        time.sleep(2)
        for number in range(options.rounds):
            before, after, back = flap(writer, options)
            ratios.append(after / before)
            print(f"round {number + 1}: {before / 1e6:.0f} MB/s, then {after / 1e6:.0f}, {ratios[-1]:.3f} of it; half of it "
                  f"{back:.2f} s after the link came up", flush=True)
    finally:
        writer.stopping = True
        writer.join(60)
        server.stdin.close()
        server.wait(20)
        other.stop()
    print(f"after it was down for {options.down:g} s the link carried {statistics.median(ratios):.3f} of before (median)")
    return 0 if statistics.median(ratios) >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
