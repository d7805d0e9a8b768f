#!/usr/bin/env python3
"""Moves a process group to another host, and to another address, under verified traffic, and wants nothing lost.

  tests/soak/move_hosts.py [--seconds 60] [--transport verbs:soft0|tcp|auto] [--frozen 5] [--seed N] [--bin build/release/bin]

Two switches with a cable between them are network namespaces of this program's own, and so are the hosts of the two ends;
where they cannot be made, it is skipped (exit code 77). fairlead-verified-traffic runs at both ends. Again and again the
end that is connected to is frozen, for five seconds: meanwhile its host is unplugged from one switch and plugged into the
other, with the same address, as a live migration does; or it gets the other of the two addresses that the connecting end
was given; or both. Then it goes on. Prints how often each was done and what both ends counted; exit code 1 if an end says
that anything is wrong, or if a session did not go on.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import sys
import time

from cut_wires import report, start  # it finds namespaces, too
from namespaces import Host, enter, join, run

HERE, PLACES = "10.97.0.1", ("10.97.0.2", "10.97.0.3")
PORT = 7400


class Net:
    """This namespace is one switch, and another the other; `guest` is the host that moves."""

    def __init__(self):
        self.other = Host()
        self.here, self.guest = Host(), Host()
        for at in ((), self.other.at):
            run("ip", "link", "add", "switch", "type", "bridge", at=at)
            run("ip", "link", "set", "switch", "up", at=at)
        self.other.link("trunk", "trunk")
        self.here.link("port0", "wire")
        self.guest.link("port1", "wire")
        self.plug("trunk", ())
        self.plug("trunk", self.other.at)
        self.plug("port0", ())
        self.plug("port1", ())
        join(HERE, "wire", at=self.here.at)
        join(PLACES[0], "wire", at=self.guest.at)
        self.away = False  # the guest is at the other switch,
        self.place = 0     # with this address

    @staticmethod
    def plug(port, at):
        run("ip", "link", "set", port, "master", "switch", at=at)
        run("ip", "link", "set", port, "up", at=at)

    def stop(self):
        for host in (self.here, self.guest, self.other):
            host.stop()

    def to_another_host(self):
        if self.away:
            run("ip", "link", "set", "port1", "netns", str(os.getpid()), at=self.other.at)
        else:
            run("ip", "link", "set", "port1", "netns", str(self.other.holder.pid))
        self.away = not self.away
        self.plug("port1", self.other.at if self.away else ())

    def to_another_address(self):
        run("ip", "addr", "del", f"{PLACES[self.place]}/24", "dev", "wire", at=self.guest.at)
        self.place = 1 - self.place
        run("ip", "addr", "add", f"{PLACES[self.place]}/24", "dev", "wire", at=self.guest.at)

    def to_both(self):
        self.to_another_host()
        self.to_another_address()


def soak(options):
    chance = random.Random(options.seed)
    program = pathlib.Path(options.bin).resolve() / "fairlead-verified-traffic"
    net = Net()
    server = start(program, net.guest, "serve", f"0.0.0.0:{PORT}", group=True)
    server.stdout.readline()
    places = ",".join(f"{place}:{PORT}" for place in PLACES)
    client = start(program, net.here, "drive", places, str(options.seconds), "--transport", options.transport)
    client.stdout.readline()  # connected: what fails before a path was ever in use ends a session
    moves = {"another host": net.to_another_host, "another address": net.to_another_address, "both": net.to_both}
    counts = dict.fromkeys(moves, 0)
    end = time.monotonic() + options.seconds
    round_seconds = options.frozen + 8
    while time.monotonic() < end - round_seconds and client.poll() is None and server.poll() is None:
        time.sleep(chance.uniform(0.5, 2))
        # Each in turn at first, so that a short run has them too.
        fewest = min(counts.values())
        name = chance.choice([each for each in moves if counts[each] == fewest])
        os.killpg(server.pid, signal.SIGSTOP)
        moves[name]()
        time.sleep(options.frozen)
        os.killpg(server.pid, signal.SIGCONT)
        counts[name] += 1
        time.sleep(min(6, max(0, end - time.monotonic())))
    reports = {name: report(name, process, 200) for name, process in (("the client", client), ("the server", server))}
    net.stop()
    print("moved to " + "; to ".join(f"{name}: {count}" for name, count in counts.items()))
    for name, counted in reports.items():
        print(f"{name}: {json.dumps(counted)}")
    return 1 if None in reports.values() or sum(counts.values()) == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--transport", default="verbs:soft0")
    parser.add_argument("--frozen", type=float, default=5, help="seconds that each move takes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"))
    options = parser.parse_args()
    enter(bridge=True)
    return soak(options)


if __name__ == "__main__":
    sys.exit(main())
