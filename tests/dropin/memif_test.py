"""Programs that know nothing of Fairlead, on softroce over memif: each end is a process with its own port over DPDK.

LOADER is the program built beside this file, the others are Debian's; those that are not installed are skipped.
"""

import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
import judge_programs  # noqa: E402  pylint: disable=wrong-import-position
import pairs  # noqa: E402  pylint: disable=wrong-import-position

FAIRLEAD = os.environ["FAIRLEAD"]
LOADER = os.environ["LOADER"]
LIMIT = 30  # seconds of a program
WIRES = itertools.count()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def side(role, wire):
    """An end of memif number `wire`; its other programs reach it at `address`, which is the port's alone."""
    address = f"10.4.0.{1 if role == 'server' else 2}"
    port = f"dpdk:net_memif0,role={role},socket=fairlead-dropin-{os.getpid()}-{wire},ip={address}/24"
    return pairs.Side(role, [FAIRLEAD, "run", "--packet-io", port, "--"], "soft0", address)


def programs(by_tcp):
    """Both ends of a new wire. `by_tcp`: the programs meet over TCP first, which is the host's."""
    wire = next(WIRES)
    ends = [side(role, wire) for role in ("server", "client")]
    if by_tcp:
        for end in ends:
            end.address = "127.0.0.1"
    return judge_programs.Programs(*ends, free_port)


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"no {program} here (scripts/setup --judges)")


class OverMemif(unittest.TestCase):
    def passes(self, step):
        outcome = step(LIMIT)
        self.assertTrue(outcome.passed, f"{outcome.reason}\n{outcome.output}")

    def passes_in_the_end(self, program, flags):
        """Datagrams are lost at a receiver that gets no core for long, and perftest waits for them for ever: a second try."""
        if "UD" in flags:
            if programs(True).perftest_once(program, flags)(LIMIT).passed:
                return
            print(f"{program} {' '.join(flags)} has lost some, and is tried again", file=sys.stderr)
        self.passes(programs(True).perftest_once(program, flags))

    def test_a_program_that_loads_libibverbs_by_version(self):
        for mode in ("move", "exit", "unload"):  # a forked child has no ports over DPDK
            with self.subTest(mode=mode):
                done = subprocess.run([*side("server", next(WIRES)).prefix, LOADER, mode], capture_output=True, text=True,
                                      timeout=LIMIT, stdin=subprocess.DEVNULL, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertIn("moved 10000 bytes", done.stdout)

    @needs("ibv_rc_pingpong")
    def test_pingpongs(self):
        for kind in ("rc", "uc", "ud", "srq"):
            with self.subTest(kind=kind):
                variants = [["-c"], ["-e"]] if kind in ("rc", "uc") else [["-e"]]
                self.passes(programs(True).pingpong(f"ibv_{kind}_pingpong", variants))

    @needs("ib_write_bw")
    def test_perftest(self):
        for program, flags in (("ib_write_bw", ["-n", "1000"]), ("ib_read_bw", ["-n", "1000"]), ("ib_send_lat", ["-n", "1000"]),
                               ("ib_atomic_bw", ["-n", "1000"]), ("ib_send_bw", ["-n", "1000", "-c", "UD"]),
                               ("ib_write_bw", ["-n", "200", "-q", "16"])):
            with self.subTest(program=program, flags=flags):
                self.passes_in_the_end(program, flags)

    @needs("ib_write_bw")
    def test_perftest_over_roce_v1(self):
        for program, flags in (("ib_write_bw", ["-n", "200", "-x", "2"]), ("ib_write_bw", ["-n", "200", "-x", "0"]),
                               ("ib_send_lat", ["-n", "200", "-c", "UD", "-x", "2"])):
            with self.subTest(program=program, flags=flags):
                self.passes_in_the_end(program, flags)

    @needs("rping")
    def test_connections_by_address(self):
        self.passes(programs(False).rping)

    @needs("ib_write_bw")
    def test_perftest_with_connections_by_address(self):
        self.passes(programs(False).perftest_once("ib_write_bw", ["-R", "-n", "1000"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
