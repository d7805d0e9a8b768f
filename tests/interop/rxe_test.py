#!/usr/bin/env python3
"""softroce and Fairlead against the RDMA drivers of Debian's kernel in a guest (scripts/vm): Linux rxe, and VMware's.

  rxe_test.py --build DIR GROUP [--quick] [--only PATTERN] [--port udp|af_packet]

  guest      in the guest alone, on the system's libibverbs: the conformance suite and the demo over rxe0
  fairlead   Fairlead on softroce here, Fairlead on rxe0 there, each way
  programs   Debian's perftest and pingpongs, unmodified: softroce here, rxe0 there, each way
  cm         the same with the connection manager: rping, perftest -R, fi_pingpong
  pvrdma     VMware's paravirtual RDMA there, which QEMU plays with softroce beneath, and softroce here: SENDs, as that is all
             that QEMU 7.2 carries, of pingpongs, perftest and Fairlead

--port af_packet: softroce here is on a port over DPDK that owns an address of its own on that wire, which it finds the
guest by ARP on, instead of on the host's sockets.

Where rxe sends or receives, what crosses the wire is captured and the ICRC of every frame is checked, and that tshark finds none
malformed (capture.py). One line per case; exit code 1 if one fails, 77 with a reason where a guest cannot be had. "-> rxe0" means
that this host initiates.
"""

import argparse
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
import capture  # noqa: E402  pylint: disable=wrong-import-position
import judge_programs  # noqa: E402  pylint: disable=wrong-import-position
import pairs  # noqa: E402  pylint: disable=wrong-import-position

SKIPPED = 77
LIMIT = {"guest": 800, "fairlead": 240, "programs": 600, "cm": 300, "pvrdma": 300}  # seconds of a group, boot included
NOT_CAPTURED = ("guest", "pvrdma")
IN_GUEST = [str(ROOT / "scripts/vm/guest")]
PVRDMA = "vmw_pvrdma0"
OWN_ADDRESS = "10.6.0.3"  # of a port that owns its wire; the host is 10.6.0.1, the guest 10.6.0.2
PORTS = {"udp": None, "af_packet": f"dpdk:net_af_packet0,iface=tap0,qdisc_bypass=0,ip={OWN_ADDRESS}/24"}


class Wire:
    """Captures what crosses it while a case runs."""

    def __init__(self, folder):
        self.file = pathlib.Path(folder) / "wire.pcap"

    def __enter__(self):
        command = ["dumpcap", "-q", "-P", "-B", "64", "-i", "tap0", "-f", "udp port 4791", "-w", self.file]
        self.program = pairs.Program(command, 300)
        end = time.monotonic() + 10
        while "File:" not in self.program.output() and self.program.running() and time.monotonic() < end:
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        time.sleep(0.3)  # the last acknowledgement
        self.program.end()

    def check(self):
        """(what was found, what is wrong or nothing)"""
        if not self.file.exists():
            return "", f"nothing was captured: {pairs.last_words(self.program.output())}"
        lost = re.search(r"dropped.*: \d+/([1-9]\d*)", self.program.output())
        if lost:
            return "", f"the capture is not complete: {lost[0]}"
        return capture.check(self.file)


def fairlead_bench(fairlead, port, server, client, operation, count):
    """`server` and `client` are pairs.Side of Fairlead itself: no preload, a device by flags."""
    def step(limit):
        def flags(side):
            device = ["--transport", f"verbs:{side.device}"]
            if side.device != "soft0":  # QEMU's pvrdma says of its GIDs that they are RoCE v1's
                return device + (["--gid-index", 1] if side.device == PVRDMA else [])
            return device + (["--packet-io", PORTS[port], "--gid-index", 1] if PORTS[port] else ["--soft-address", side.address])
        return pairs.run_pair(
            server, [fairlead, "bench", "--server", f"{server.address}:7480", "--once", *flags(server)],
            client, [fairlead, "bench", "bw", f"{server.address}:7480", "--op", operation, "--size", "8,64K", "--iterations", count,
                     *flags(client)], limit, 7480)
    return step


def fairlead_cases(fairlead, port, quick):
    host = pairs.Side("host", [], "soft0", os.environ["FAIRLEAD_VM_HOST"])
    guest = pairs.Side("guest", IN_GUEST, "rxe0", os.environ["FAIRLEAD_VM_GUEST"], remote=IN_GUEST)
    for server, client, way in ((guest, host, "-> rxe0"), (host, guest, "<- rxe0")):
        for operation in ("write",) if quick else ("write", "read", "send"):
            yield f"fairlead bench {operation} {way}", 60, fairlead_bench(fairlead, port, server, client, operation, 100)


def both_ways(fairlead, port, by_tcp):
    """`by_tcp`: the programs meet over TCP first, which is the host's whatever the device's port."""
    where = os.environ["FAIRLEAD_VM_HOST"] if by_tcp or not PORTS[port] else OWN_ADDRESS
    device = ["--packet-io", PORTS[port]] if PORTS[port] else ["--address", where]
    host = pairs.Side("host", [fairlead, "run", *device, "--"], "soft0", where)
    guest = pairs.Side("guest", IN_GUEST, "rxe0", os.environ["FAIRLEAD_VM_GUEST"], remote=IN_GUEST)
    ports = itertools.count(18600)
    for server, client, way in ((guest, host, "-> rxe0"), (host, guest, "<- rxe0")):
        yield judge_programs.Programs(server, client, lambda: next(ports)), way


def program_cases(fairlead, port, quick):
    for programs, way in both_ways(fairlead, port, by_tcp=True):
        for kind in ("rc",) if quick else ("rc", "uc", "ud", "srq"):
            variants = [["-c", "-n", "200"]] if kind in ("rc", "uc") else [["-n", "200"]]
            yield f"ibv_{kind}_pingpong {way}", 40, programs.pingpong(f"ibv_{kind}_pingpong", variants)
        runs = [("ib_write_bw", "-n 100"), ("ib_read_bw", "-n 100"), ("ib_send_bw", "-n 100"), ("ib_atomic_bw", "-n 200"),
                ("ib_write_lat", "-n 200 -s 8")]
        if not quick:
            runs += [("ib_send_lat", "-n 200"), ("ib_read_lat", "-n 200"), ("ib_atomic_lat", "-n 200"), ("ib_write_bw", "-n 100 -q 4"),
                     ("ib_write_bw", "-n 100 -b"), ("ib_send_bw", "-n 100 -e"), ("ib_write_bw", "-n 100 -c UC"),
                     ("ib_send_bw", "-n 100 -s 1024 -c UD"), ("ib_write_bw", "-n 20 -s 1048576")]
        for program, flags in runs:
            yield f"{program} {flags} {way}", 40, programs.perftest_once(program, flags.split())


def cm_cases(fairlead, port, quick):
    for programs, way in both_ways(fairlead, port, by_tcp=False):
        yield f"rping {way}", 40, programs.rping
        for program in ("ib_write_bw",) if quick else ("ib_write_bw", "ib_send_bw"):
            yield f"{program} -R -n 100 {way}", 40, programs.perftest_once(program, ["-R", "-n", "100"])
        if not quick and not PORTS[port]:  # which also needs TCP at the address of the device
            yield f"fi_pingpong -p verbs -e msg {way}", 40, programs.fi_pingpong("msg")


def pvrdma_cases(fairlead, _port, _quick):
    # -Q 1: QEMU completes every SEND, also those that did not ask for it, which perftest would count as many.
    where = os.environ["FAIRLEAD_VM_HOST"]
    host = pairs.Side("host", [fairlead, "run", "--address", where, "--"], "soft0", where)
    itself = pairs.Side("host", [], "soft0", where)
    guest = pairs.Side("guest", IN_GUEST, PVRDMA, os.environ["FAIRLEAD_VM_GUEST"], remote=IN_GUEST)
    ports = itertools.count(18600)
    for server, client, way in ((guest, host, "-> pvrdma"), (host, guest, "<- pvrdma")):
        programs = judge_programs.Programs(server, client, lambda: next(ports))
        for kind, variant in (("rc", ["-c", "-n", "200"]), ("ud", ["-n", "200", "-s", "1024"])):
            yield f"ibv_{kind}_pingpong {way}", 40, programs.pingpong(f"ibv_{kind}_pingpong", [variant])
        for program, flags in (("ib_send_bw", "-Q 1 -n 200 -s 4096"), ("ib_send_lat", "-n 200 -s 64")):
            yield f"{program} {flags} {way}", 40, programs.perftest_once(program, flags.split())
    for server, client, way in ((guest, itself, "-> pvrdma"), (itself, guest, "<- pvrdma")):
        yield f"fairlead bench write, as messages, {way}", 60, fairlead_bench(fairlead, "udp", server, client, "write", 100)


def guest_cases(build):
    def once(*command, **environment):
        def step(limit):
            begin = time.monotonic()
            program = pairs.Program(command, limit, environment)
            status, text = program.wait(), program.output()
            reason = "" if status == 0 else f"exit code {status}: {pairs.last_words(text, 3)}"
            return pairs.Outcome(not reason, reason, time.monotonic() - begin, text)
        return step
    device = {"FAIRLEAD_CONFORMANCE_DEVICE": "rxe0", "GTEST_BRIEF": "1"}
    yield "fairlead devices", 30, once(build / "bin/fairlead", "devices")
    # rxe's requester stands still for more than half a second now and then where it is emulated: leaving it then would be
    # right, but this case shows the path over rxe.
    yield "demo over rxe0", 120, once(ROOT / "scripts/demo", "--rounds", "1", "--transport", "verbs:rxe0", "--bin", build / "bin",
                                      FAIRLEAD_PATH_TIMEOUT="5000")
    for suite, limit in (("transport_conformance_test", 300), ("engine_conformance_test", 300)):
        yield f"{suite} over rxe0", limit, once(build / "tests" / suite, FAIRLEAD_VISIBILITY_ROUNDS="5000", **device)


def run_group(options):
    fairlead = options.build / "bin/fairlead"
    cases = {"guest": lambda: guest_cases(options.build),
             "fairlead": lambda: fairlead_cases(fairlead, options.port, options.quick),
             "programs": lambda: program_cases(fairlead, options.port, options.quick),
             "cm": lambda: cm_cases(fairlead, options.port, options.quick),
             "pvrdma": lambda: pvrdma_cases(fairlead, options.port, options.quick)}[options.group]()
    passed = failed = 0
    frames = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, limit, step in cases:
            if not re.search(options.only, name):
                continue
            if options.group in NOT_CAPTURED:
                outcome, found = step(limit), ""
            else:
                with Wire(folder) as wire:
                    outcome = step(limit)
                found, problem = wire.check()
                frames += int(found.split()[0]) if found else 0
                if outcome.passed and problem:
                    outcome.passed, outcome.reason = False, problem
            note = "; ".join(part for part in (outcome.reason, found) if part)
            print(f"{'pass' if outcome.passed else 'FAIL'}  {outcome.seconds:6.1f} s  {name}: {note}", flush=True)
            if not outcome.passed:
                print("    " + outcome.output.replace("\n", "\n    "), flush=True)
            passed += outcome.passed
            failed += not outcome.passed
    print(f"{passed} of {passed + failed} pass" + (f"; {frames} frames captured, all with the right ICRC, none malformed"
                                                   if frames and not failed else ""), flush=True)
    return 0 if passed and not failed else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--port", choices=sorted(PORTS), default="udp")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # this program's own second half
    parser.add_argument("group", choices=sorted(LIMIT))
    options = parser.parse_args()
    if options.inside:
        sys.exit(run_group(options))
    if options.group not in NOT_CAPTURED and shutil.which("dumpcap") is None:
        print("skipped: no dumpcap here (scripts/setup --vm installs tshark, which brings it)")
        sys.exit(SKIPPED)
    if PORTS[options.port] and not any(options.build.rglob("libfairlead-dpdk.so")):
        print("skipped: no module for ports over DPDK was built (scripts/setup --dpdk, then configure again)")
        sys.exit(SKIPPED)
    device = "--pvrdma" if options.group == "pvrdma" else "--rxe"
    command = [ROOT / "scripts/vm/run", device, "--seconds", LIMIT[options.group], "--memory", 2048]
    command += ["--beside"] if options.group != "guest" else []
    command += ["--", sys.executable, __file__, "--build", options.build, "--only", options.only, "--port", options.port, "--inside",
                options.group]
    command += ["--quick"] if options.quick else []
    sys.exit(subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, check=False).returncode)


if __name__ == "__main__":
    main()
