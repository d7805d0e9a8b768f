"""rdma-core's own Python tests (Debian's rdma-core ships them, python3-pyverbs is what they test with), run and counted.

Every module runs by itself with a limit, so that one that hangs costs its own tests only. Modules of other devices
(mlx5, efa) and of CUDA are left out.
"""

import collections
import gzip
import json
import pathlib
import re
import subprocess
import time

import pairs

INSTALLED = pathlib.Path("/usr/share/doc/rdma-core/tests")
# Linux rxe in a 6.1 guest: 86 of 170 pass, 83 are skipped, 1 errs (ATOMIC WRITE, which its verbs have not).
LINUX_RXE_PASSES = 86
WANTED_PASSES = 100
PYTHON = "/usr/bin/python3"  # Debian's, which finds python3-pyverbs; another may come first in PATH
RUNNER = pathlib.Path(__file__).with_name("pyverbs_module.py")


def prepare(work):
    """A folder with the package `tests`, unpacked: Debian compresses some of the files. None if they cannot be had."""
    source = INSTALLED
    if not source.is_dir():  # an image that leaves out /usr/share/doc
        fetch = "apt-get -q download rdma-core && dpkg-deb -x rdma-core_*.deb package"
        subprocess.run(["bash", "-c", fetch], cwd=work, capture_output=True, check=False)
        source = work / "package/usr/share/doc/rdma-core/tests"
        if not source.is_dir():
            return None
    target = work / "tests"
    target.mkdir()
    for file in source.iterdir():
        if file.suffix == ".gz":
            (target / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            (target / file.name).write_bytes(file.read_bytes())
    return work


def modules(folder):
    names = sorted(path.stem for path in (folder / "tests").glob("test_*.py"))
    return [name for name in names if not re.search("mlx5|efa|cuda", name)]


class Counts:
    """What the tests said: results by module, reasons of skips, names of what failed."""

    def __init__(self):
        self.by_module = {}
        self.skips = collections.Counter()
        self.failures = []

    def add(self, module, results, status):
        """`results`: the lines that pyverbs_module.py wrote; `status`: its exit code."""
        counts, open_test = collections.Counter(), None
        for line in results.splitlines():
            message = json.loads(line)
            if "begin" in message:
                open_test = message["begin"]
                continue
            name = message["end"].removeprefix("tests.")
            open_test = None
            counts[message["result"]] += 1
            if message["result"] == "skipped":
                self.skips[message["reason"]] += 1
            elif message["result"] != "ok":
                reason = message["reason"].strip().splitlines()
                self.failures.append(f"{name}: {reason[0] if reason else message['result']}"[:200])
        if status != 0:
            ended = "did not end" if status == 124 else f"ended with exit code {status}"
            self.failures.append(f"{module} {ended}" + (f" in {open_test.removeprefix('tests.')}" if open_test else ""))
            counts["error"] += 1
        self.by_module[module] = counts

    def total(self, result):
        return sum(counts[result] for counts in self.by_module.values())

    def passed(self):
        return not self.failures and self.total("ok") >= WANTED_PASSES

    def summary(self):
        words = f"{self.total('ok')} ok, {self.total('skipped')} skipped, {len(self.failures)} failed"
        words += f" (wanted: at least {WANTED_PASSES} ok and none failed; Linux rxe: {LINUX_RXE_PASSES} ok)"
        return words + (f"; failed: {', '.join(self.failures)}" if self.failures else "")


def run(side, work, limit_per_module, only=None):
    """(Outcome, Counts)"""
    begin = time.monotonic()
    folder = prepare(work)
    if folder is None:
        return pairs.Outcome(False, "rdma-core's tests are not installed and cannot be downloaded", 0, skipped=True), Counts()
    counts, log = Counts(), ""
    results = work / "results"
    for module in modules(folder):
        if only and module not in only:
            continue
        results.write_text("", encoding="utf-8")
        program = side.start(["env", "PYTHONDONTWRITEBYTECODE=1", PYTHON, "-u", RUNNER, folder, module, results,
                              "--dev", side.device, "--gid", "1"], limit_per_module)
        status = program.wait()
        log += f"--- {module}: exit code {status}\n{program.output()}\n"
        counts.add(module, results.read_text(encoding="utf-8"), status)
    return pairs.Outcome(counts.passed(), counts.summary(), time.monotonic() - begin, log), counts
