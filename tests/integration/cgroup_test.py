"""A server in a control group with little memory: what never fits is refused, with the limit and the remedy, and the server
lives on. Without that the kernel's OOM killer would end it. Needs the right to make a control group with a memory limit."""

import os
import pathlib
import subprocess
import sys
import time
import unittest

from harness import PATIENCE, SLOW, Case, random_model, write_raw, write_safetensors

LIMIT = (512 << 20) * (1 if SLOW == 1 else 3)  # sanitizers take more themselves
TOO_MUCH = LIMIT + (128 << 20)


def own_group():
    """(folder of this process's memory control group, name of the limit's file); (None, why) where there is none"""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for mount, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            wanted = "memory" in controllers.split(",") if name.endswith("bytes") else controllers == ""
            for folder in (pathlib.Path(mount + path), pathlib.Path(mount)) if wanted else ():
                if (folder / "cgroup.procs").exists():
                    return folder, name
    return None, "no control groups with memory limits are mounted"


def make_group():
    """(the group, None) or (None, why not)"""
    parent, name = own_group()
    if parent is None:
        return None, name
    group = parent / f"fairlead-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as why:
        return None, f"no control group can be made: {why}"
    try:
        (group / name).write_text(str(LIMIT), encoding="ascii")
        subprocess.run(["sh", "-c", f'echo $$ >"{group}/cgroup.procs"'], check=True, capture_output=True)
        return group, None
    except (OSError, subprocess.CalledProcessError) as why:  # version 2 may not hand the controller on to such a group
        remove(group)
        return None, f"the memory of a control group cannot be limited: {why}"


def remove(group):
    """Its processes have ended; the kernel may need a moment to see that."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def more_than_memory():
    """Whether swap or free huge pages would take what the group's memory does not."""
    meminfo = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return any(int(meminfo.get(name, "0").split()[0]) for name in ("SwapTotal", "HugePages_Free"))


class ControlGroup(Case):
    def setUp(self):
        super().setUp()
        self.group, why = make_group()
        if self.group is None:
            self.skipTest(why)
        self.addCleanup(remove, self.group)  # after the processes in it have ended
        if more_than_memory():
            self.skipTest("there is swap, or there are free huge pages, which count beside the group's memory")

    def test_what_never_fits_is_refused(self):
        small, large = self.path("small.safetensors"), self.path("large.safetensors")
        model = random_model(2)
        write_safetensors(small, model)
        write_raw(large, b'{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (TOO_MUCH, TOO_MUCH), b"")
        with open(large, "r+b") as file:
            file.truncate(os.path.getsize(large) + TOO_MUCH)
        inside = ("sh", "-c", f'echo $$ >"{self.group}/cgroup.procs" && exec "$@"', "sh")
        server = self.serve("--max-bytes", "4G", within=inside)
        code, output, _ = self.push(server, large, "--checksum", "off")
        if more_than_memory():
            self.skipTest("free huge pages came meanwhile")
        self.assertEqual(code, 1, output)
        self.assertRegex(output, rf"cannot allocate {TOO_MUCH} bytes .*control group's limit, .*{self.group.name}/memory\.")
        self.assertIsNone(server.process.poll(), server.output)
        code, output, _ = self.push(server, small)
        self.assertEqual(code, 0, output)


if __name__ == "__main__":
    result = unittest.main(verbosity=2, exit=False).result
    if result.skipped and result.wasSuccessful():
        print("skipped:", result.skipped[0][1])
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
