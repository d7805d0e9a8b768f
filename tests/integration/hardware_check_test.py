"""scripts/hardware-check between two network namespaces of the test's own, and what it says where it cannot do its work.

It reaches a host by any command that runs its last argument there by a shell: here nsenter, in place of ssh.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile

from harness import PATIENCE, PROGRAM, Case, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/hardware-check"
sys.path.insert(0, str(ROOT / "scripts/lib"))
from far_host import FarHost  # noqa: E402
from namespaces import enter, run, second_host  # noqa: E402

HERE, THERE = "10.99.0.1", "10.99.0.2"
NSENTER = "nsenter --net --target {host} sh -c"
HERE_TOO = "env HOST={host} sh -c"


class Checked(Case):
    def check(self, *words, remote=NSENTER, program=PROGRAM):
        """(exit code, output)"""
        done = subprocess.run([SCRIPT, "--remote", remote, "--program", os.path.abspath(program), *map(str, words)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE * 2, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout + done.stderr


class TwoHosts(Checked):
    def setUp(self):
        super().setUp()
        self.other = second_host(self, (HERE, "fl-here"), (THERE, "fl-there"))

    def bundle(self):
        """({name: text}, {(where, check): row})"""
        with tarfile.open(self.path("found.tar.gz")) as archive:
            files = {name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()}
        summary = json.loads(files["summary.json"])
        self.assertEqual(summary["schema"], "fairlead.hardware_check/1")
        return files, {(row["where"], row["check"]): row for row in summary["checks"]}

    def test_all_is_checked_and_a_lower_mtu_is_found(self):
        run("ip", "link", "set", "fl-there", "mtu", "1400", at=self.other.at)
        code, output = self.check(os.getpid(), self.other.holder.pid, "--address-a", HERE, "--address-b", THERE, "--short", "--output",
                                  self.path("found.tar.gz"))
        files, rows = self.bundle()
        wrong = {check for (where, check), row in rows.items() if row["result"] == "FAIL" and check != "doctor"}  # that is the machine's
        self.assertEqual(wrong, {"MTU alike"}, output)
        self.assertEqual(code, 1, output)
        self.assertIn("fl-here 1500, fl-there 1400", rows["between", "MTU alike"]["note"])
        for host, interface, mtu in (("A", "fl-here", 1500), ("B", "fl-there", 1400)):
            self.assertRegex(files[f"{host}/settings.txt"], rf"(?s)== ip -d -s link\n.*{interface}@[^\n]* mtu {mtu} ")
            self.assertIn("== memlock: ulimit -l", files[f"{host}/settings.txt"])
            self.assertGreater(len(json.loads(files[f"{host}/doctor.json"])["checks"]), 20)
            self.assertIn("machine", json.loads(files[f"{host}/topology.json"]))
        reports = [json.loads(text) for name, text in files.items() if name.startswith("between/bench") and name.endswith(".json")]
        self.assertEqual(sorted(report["transport"] for report in reports), ["tcp", "tcp", "verbs:soft0", "verbs:soft0"])
        self.assertTrue(all(result["verified"] for report in reports for result in report["results"] if "verified" in result))
        self.assertTrue(any(name.startswith("between/gain") and name.endswith(".html") for name in files), list(files))
        self.assertIn(f"`{self.other.holder.pid}`, data over {THERE}, softroce", files["summary.md"])

    def test_what_cannot_be_reached_is_a_failure_and_bundled(self):
        run("ip", "link", "set", "fl-there", "down", at=self.other.at)
        run("ip", "route", "add", "unreachable", f"{THERE}/32")  # else each attempt waits for an answer to ARP
        code, output = self.check(os.getpid(), self.other.holder.pid, "--address-a", HERE, "--address-b", THERE, "--short", "--output",
                                  self.path("found.tar.gz"))
        self.assertEqual(code, 1, output)
        _, rows = self.bundle()
        for (where, check), row in rows.items():
            if check == "bench of GPU memory":  # here are none
                self.assertEqual(row["result"], "skipped", output)
            elif check.startswith(("bench", "gain")):
                self.assertEqual((where, row["result"]), ("between", "FAIL"), output)


class Refused(Checked):
    def assert_refused(self, words, *patterns, **settings):
        code, output = self.check(*words, **settings)
        self.assert_fails((code, output), 2, *patterns)

    def test_why_a_host_is_of_no_use(self):
        self.assert_refused(["a", "b"], r"a: exit code 1 of .*It is reached by `false a`; Fairlead must be there \(--program FILE\)",
                            remote="false {host}")
        self.assert_refused(["a", "b"], r"a: exit code 127 of `/nowhere/fairlead --version`", remote=HERE_TOO, program="/nowhere/fairlead")
        self.assert_refused(["a", "b", "--address-a", "10.0.0.256"], "--address-a 10.0.0.256: not an IP address", remote=HERE_TOO)
        self.assert_refused(["no.such.host.invalid", "b"], r"no.such.host.invalid: not a name .*\(--address-a IP\)", remote=HERE_TOO)
        self.assert_refused(["--", "-oProxyCommand=id", "b"], "begins with '-'")
        self.assert_refused(["a", "b"], r"has no \{host\}", remote="sh -c")
        self.assert_refused(["a", "b", "--output", "/nowhere/at/all.tar.gz"], "there is no folder /nowhere/at", remote=HERE_TOO)


class Far(Case):
    """FarHost, at this host."""

    def far(self, *remote, address="127.0.0.1"):
        return FarHost("A", [], "", address, remote=list(remote) or ["sh", "-c"])

    def test_words_arrive_as_they_are(self):
        words = ["a b", "$HOME", "'", '"', "", "*", "\\", "; exit 3"]
        program = self.far().start(["printf", "[%s]", *words], 20)
        self.assertEqual((program.wait(), program.output()), (0, "".join(f"[{word}]" for word in words)))

    def test_files_come_back_and_nothing_stays(self):
        status, said, files = self.far().fetch(["sh", "-c", "pwd; echo one > a; printf '=== file b' > b; exit 3"], ["a", "b", "none"], 20)
        self.assertEqual((status, files), (3, {"a": "one\n", "b": "=== file b", "none": ""}))
        self.assertFalse(pathlib.Path(said.strip()).exists())

    def test_a_program_that_does_not_end_is_ended_there(self):
        program = self.far().start(["sleep", "60"], 1)
        self.assertEqual(program.wait(), 124)

    def device(self, gids):
        """What it finds where the RDMA devices of /sys are {(device, index): (gid, type)}."""
        for (device, index), (gid, kind) in gids.items():
            port = self.folder / device / "ports/1"
            (port / "gids").mkdir(parents=True, exist_ok=True)
            (port / "gid_attrs/types").mkdir(parents=True, exist_ok=True)
            (port / "gids" / str(index)).write_text(gid + "\n", encoding="ascii")
            (port / "gid_attrs/types" / str(index)).write_text(kind + "\n", encoding="ascii")
        elsewhere = "import subprocess, sys; sys.exit(subprocess.call(['sh', '-c', sys.argv[2].replace('/sys/class/infiniband', sys.argv[1])]))"
        return self.far(sys.executable, "-c", elsewhere, str(self.folder), address="10.0.0.7").rdma_device()

    def test_the_device_is_the_one_with_the_address_by_roce_v2(self):
        here, link_local = "0000:0000:0000:0000:0000:ffff:0a00:0007", "fe80:0000:0000:0000:0000:00ff:fe00:0001"
        self.assertIsNone(self.device({}))
        self.assertIsNone(self.device({("mlx5_0", 0): (link_local, "IB/RoCE v1"), ("mlx5_0", 1): (link_local, "RoCE v2"),
                                       ("mlx5_1", 2): (here, "IB/RoCE v1")}))
        self.assertEqual(self.device({("mlx5_1", 3): (here, "RoCE v2")}), ("mlx5_1", 3))


if __name__ == "__main__":
    enter()
    main()
