#!/usr/bin/env python3
"""Cuts the wires of two processes that exchange verified traffic, again and again, and wants nothing lost.

  tests/soak/cut_wires.py [--seconds 600] [--transport verbs:soft0|tcp|auto] [--paths N] [--lanes N] [--seed N] [--bin build/release/bin]

Two hosts and a switch between them are network namespaces of this program's own; where they cannot be made, it is skipped
(exit code 77). fairlead-verified-traffic runs on both; meanwhile the switch forgets a port (nobody is told), a host's link
goes down, TCP connections are reset, a process is stopped, or all of them for seconds. Writes to what is withdrawn end
paths as well. With several paths there is a second wire, with addresses and a switch of its own, which has its troubles too
(--transport verbs:soft0,verbs:soft1 is a device at each). Prints how often each was done and what both ends counted; exit code 1 if an end says that anything is wrong.
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
    options = parser.parse_args()
    enter("ss", bridge=True)
    return soak(options)


if __name__ == "__main__":
    sys.exit(main())
