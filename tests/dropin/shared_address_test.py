"""Unmodified programs that share one address of a network interface, in a network namespace of their own."""

import os
import shutil
import subprocess
import sys
import time
import unittest

FAIRLEAD = os.environ["FAIRLEAD"]
ADDRESS = "10.88.0.1"
PAIRS = 4
INSIDE = "FAIRLEAD_TEST_INSIDE"


def quiet(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                          check=False).returncode == 0


def prepare_namespace():
    """A host with one interface whose address all share."""
    return (quiet("ip", "link", "set", "lo", "up") and
            quiet("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1") and
            quiet("ip", "link", "set", "v1", "up") and quiet("ip", "link", "set", "v0", "up") and
            quiet("ip", "addr", "add", f"{ADDRESS}/24", "dev", "v0"))


def pingpong(port, *words, iterations=2000):
    """By events (-e): eight programs that spin would share two cores a time slice at a time."""
    return subprocess.Popen(
        [FAIRLEAD, "run", "--address", ADDRESS, "--", "ibv_rc_pingpong", "-g", "1", "-c", "-e", "-p", str(port), "-n",
         str(iterations), *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def connect(port, **options):
    server = pingpong(port, **options)
    for _ in range(200):  # until the server listens
        time.sleep(0.05)
        with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:
            if f":{port:04X} " in v4.read() + v6.read():
                break
    return server, pingpong(port, "127.0.0.1", **options)


class SharedAddress(unittest.TestCase):
    def finish(self, process):
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn(f"GID ::ffff:{ADDRESS}", out)
        self.assertRegex(out, r"\d+ iters in")

    def test_pairs_at_one_address_and_one_that_is_killed(self):
        victim = connect(18500, iterations=100_000_000)
        pairs = [connect(18600 + i, iterations=5000) for i in range(PAIRS - 1)]
        time.sleep(0.3)
        self.assertIsNone(victim[0].poll())
        for process in victim:
            process.kill()
            process.communicate()
        again = connect(18700)
        for process in [p for pair in pairs for p in pair] + list(again):
            self.finish(process)

    @unittest.skipUnless(shutil.which("rping"), "no rping; install rdmacm-utils")
    def test_servers_at_one_address(self):
        def rping(*words):
            return subprocess.Popen([FAIRLEAD, "run", "--address", ADDRESS, "--", "rping", *words, "-a", ADDRESS, "-C", "20", "-v"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        ports = [str(18800 + i) for i in range(3)]
        programs = [rping("-s", "-p", port) for port in ports]
        time.sleep(1)  # until they listen; a client that comes before asks again for 2 s
        programs += [rping("-c", "-p", port) for port in reversed(ports)]
        for program in reversed(programs):  # the clients first
            out, _ = program.communicate(timeout=60)
            self.assertIn("rdma-ping-19" if program in programs[3:] else "server ping data: rdma-ping-19", out)
            if program in programs[3:]:
                self.assertEqual(program.returncode, 0, out)


def main():
    if not shutil.which("ibv_rc_pingpong"):
        print("skipped: no ibv_rc_pingpong; install ibverbs-utils")
        return 77
    if os.environ.get(INSIDE) is None:
        if not quiet("unshare", "-n", "true") or not shutil.which("ip"):
            print("skipped: needs root, network namespaces and iproute2")
            return 77
        os.execvpe("unshare", ["unshare", "-n", sys.executable, __file__], {**os.environ, INSIDE: "1"})
    if not prepare_namespace():
        print("skipped: no veth interfaces here")
        return 77
    unittest.main(verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
