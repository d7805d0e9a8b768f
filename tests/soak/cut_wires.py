#!/usr/bin/env python3
"""Cuts the wires of two processes that exchange verified traffic, again and again, and wants nothing lost.

  tests/soak/cut_wires.py --second-wire [--seconds 60] [--seed N] [--bin build/release/bin]
  tests/soak/cut_wires.py [--seconds 600] [--transport verbs:soft0|tcp|auto] [--paths N] [--lanes N] [--seed N] [--bin build/release/bin]

Two hosts and a switch between them are network namespaces of this program's own; where they cannot be made, it is skipped
(exit code 77). fairlead-verified-traffic runs on both; meanwhile the switch forgets a port (nobody is told), a host's link
goes down, TCP connections are reset, a process is stopped, or all of them for seconds. Writes to what is withdrawn end
paths as well. With several paths there is a second wire, with addresses and a switch of its own, which has its troubles too
(--transport verbs:soft0,verbs:soft1 is a device at each).

--second-wire has no chance in it: of two wires, a softroce device at each, tc shapes the second to a quarter of the first; both
carry; the second's link goes down, the first carries on; it is up again, and both carry; then the first's goes down for a
second, and after that both carry again. So until the time is over, at least once. What a wire carried is what its interface
counted.

Prints how often each was done and what both ends counted; exit code 1 if an end says that anything is wrong.
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from namespaces import Host, enter, join, run  # noqa: E402

HERE, THERE = "10.99.0.1", "10.99.0.2"
WIRES = ((HERE, THERE), ("10.98.0.1", "10.98.0.2"))


class Net:
    """This namespace is the switch."""

    def __init__(self, chance, wires):
        self.chance = chance
        self.wires = wires
        self.hosts = [Host(), Host()]
        for wire in range(wires):
            run("ip", "link", "add", f"switch{wire}", "type", "bridge")
            run("ip", "link", "set", f"switch{wire}", "up")
            for number, (host, address) in enumerate(zip(self.hosts, WIRES[wire])):
                port = f"port{number}-{wire}"
                host.link(port, f"wire{wire}")
                run("ip", "link", "set", port, "master", f"switch{wire}")
                run("ip", "link", "set", port, "up")
                join(address, f"wire{wire}", at=host.at)

    def stop(self):
        for host in self.hosts:
            host.stop()

    # Each begins a trouble, and gives what ends it.
    def silence(self, number):
        wire = self.chance.randrange(self.wires)
        run("ip", "link", "set", f"port{number}-{wire}", "nomaster")
        return lambda: run("ip", "link", "set", f"port{number}-{wire}", "master", f"switch{wire}")

    def link_down(self, number):
        at = self.hosts[number].at
        wire = f"wire{self.chance.randrange(self.wires)}"
        run("ip", "link", "set", wire, "down", at=at)
        return lambda: run("ip", "link", "set", wire, "up", at=at)

    def reset(self, number):
        run("ss", "-K", "-t", "dst", THERE if number == 0 else HERE, at=self.hosts[number].at)
        return lambda: None


def stopped(processes):
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    return lambda: [process.send_signal(signal.SIGCONT) for process in processes]


def start(program, host, *words, group=False):
    # nsenter becomes the program: a signal to it is one to that. What it logs goes to a file: nobody reads a pipe meanwhile.
    log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
    process = subprocess.Popen([*host.at, program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                               text=True, start_new_session=group)
    process.log = log
    return process


def report(name, process, patience):
    late = ""
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        late = "; it did not end in time"
    if process.returncode == 0:
        return json.loads(output.splitlines()[-1])
    process.log.seek(0)
    print(f"{name} failed ({process.returncode}){late}; the last it said:")
    print("\n".join((output + process.log.read()).splitlines()[-30:]))
    return None


def shape(net, wire, megabits):
    for host in net.hosts:
        run("tc", "qdisc", "add", "dev", f"wire{wire}", "root", "tbf", "rate", f"{megabits}mbit", "burst", "64kb", "limit", "4mb",
            at=host.at)


def carried(net, wire):
    """Bytes that the client's end of a wire sent and received, ever."""
    counted = json.loads(run("ip", "-s", "-j", "link", "show", f"wire{wire}", at=net.hosts[0].at))[0]["stats64"]
    return counted["tx"]["bytes"] + counted["rx"]["bytes"]


def await_bytes(net, wires, more, what, processes, limit=120):
    """Until each of these wires has carried so many bytes more."""
    begin, end = {wire: carried(net, wire) for wire in wires}, time.monotonic() + limit
    while True:
        moved = {wire: carried(net, wire) - begin[wire] for wire in wires}
        if all(moved[wire] >= more for wire in wires):
            print(f"{what}: " + ", ".join(f"wire {wire} carried {moved[wire] / 1e6:.1f} MB" for wire in wires), flush=True)
            return True
        if time.monotonic() > end or any(process.poll() is not None for process in processes):
            print(f"{what}: not so; within {limit} s wires carried {moved} bytes, wanted is {more} over each", flush=True)
            return False
        time.sleep(0.1)


def second_wire(options):
    program = pathlib.Path(options.bin).resolve() / "fairlead-verified-traffic"
    net = Net(random.Random(options.seed), 2)
    for wire, megabits in enumerate((200, 50)):
        shape(net, wire, megabits)

    def flags(end):
        return ["--transport", "verbs:soft0,verbs:soft1", "--paths", "2", "--soft-address", ",".join(wire[end] for wire in WIRES)]

    # It is told to stop when the last of these things was seen.
    stop = pathlib.Path(tempfile.mkdtemp()) / "stop"
    server = start(program, net.hosts[1], "serve", f"{THERE}:7400", *flags(1))
    server.stdout.readline()
    client = start(program, net.hosts[0], "drive", f"{THERE}:7400", "3600", "--stop-file", stop, *flags(0))
    processes, at = (client, server), net.hosts[0].at
    end, rounds, good = time.monotonic() + options.seconds, 0, True
    while good and (rounds == 0 or time.monotonic() < end):
        rounds += 1
        good = await_bytes(net, (0, 1), 1 << 20, "both", processes)
        run("ip", "link", "set", "wire1", "down", at=at)
        good = good and await_bytes(net, (0,), 4 << 20, "the second down", processes)
        run("ip", "link", "set", "wire1", "up", at=at)
        good = good and await_bytes(net, (0, 1), 1 << 20, "the second up again", processes)
        run("ip", "link", "set", "wire0", "down", at=at)
        time.sleep(1)
        run("ip", "link", "set", "wire0", "up", at=at)
        good = good and await_bytes(net, (0, 1), 1 << 20, "the first down and up again", processes)
    stop.touch()
    reports = {name: report(name, process, 200) for name, process in (("the client", client), ("the server", server))}
    net.stop()
    stop.unlink()
    stop.parent.rmdir()
    for name, counted in reports.items():
        print(f"{name}: {json.dumps(counted)}")
    if None in reports.values() or not good:
        return 1
    return 0 if reports["the client"]["rail_bytes"] > 0 else 1


def soak(options):
    chance = random.Random(options.seed)
    program = pathlib.Path(options.bin).resolve() / "fairlead-verified-traffic"
    several = options.paths != 1
    net = Net(chance, 2 if several else 1)
    flags = ["--transport", options.transport]
    there = ["--lanes", str(options.lanes)]
    if several:
        flags += ["--paths", str(options.paths), "--soft-address", ",".join(wire[0] for wire in WIRES)]
        there += ["--transport", options.transport, "--paths", str(options.paths),
                  "--soft-address", ",".join(wire[1] for wire in WIRES)]
    # Else its own transport is for the end that connects to choose.
    server = start(program, net.hosts[1], "serve", f"{THERE}:7400", *there)
    server.stdout.readline()
    client = start(program, net.hosts[0], "drive", f"{THERE}:7400", str(options.seconds), *flags)
    client.stdout.readline()  # connected: what fails before a path was ever in use ends a session
    both = [client, server]
    troubles = {"silence": net.silence, "link down": net.link_down, "reset": net.reset,
                "process stopped": lambda number: stopped([both[number]])}
    counts = dict.fromkeys([*troubles, "both stopped for seconds"], 0)
    end = time.monotonic() + options.seconds
    while time.monotonic() < end - 3 and all(process.poll() is None for process in both):
        time.sleep(chance.uniform(0.02, 0.5))
        name = chance.choice(list(troubles))
        duration = chance.uniform(2, 5) if chance.random() < 0.01 else chance.uniform(0.01, 0.6)
        if chance.random() < 0.005:
            name, mend, duration = "both stopped for seconds", stopped(both), 5
        else:
            mend = troubles[name](chance.randrange(2))
        if name != "reset":
            time.sleep(duration)
        mend()
        counts[name] += 1
    reports = {name: report(name, process, 200) for name, process in (("the client", client), ("the server", server))}
    net.stop()
    print("; ".join(f"{name}: {count}" for name, count in counts.items()))
    for name, counted in reports.items():
        print(f"{name}: {json.dumps(counted)}")
    return 1 if None in reports.values() else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--transport", default="verbs:soft0")
    parser.add_argument("--paths", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=1, help="of the end that accepts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=str(pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"))
    parser.add_argument("--second-wire", action="store_true")
    options = parser.parse_args()
    enter("ss", "tc", bridge=True)
    return second_wire(options) if options.second_wire else soak(options)


if __name__ == "__main__":
    sys.exit(main())
