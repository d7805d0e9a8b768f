#!/usr/bin/env python3
"""An engine in a guest with two NUMA nodes: its lanes' threads and its pool's pages are where the plan says.

  placement_test.py --build DIR [--accel kvm|tcg]

The guest (scripts/vm) has two CPUs and half of the memory at each node, and its network card at the second. `fairlead serve` is
started with each of several placements, and a model pushed to it, then fairlead-verified-traffic, which allocates from a pool;
where their threads may run is read from /proc/PID/task/*/status, where their pages are from /proc/PID/numa_maps, and compared
with what they say of both. Before that huge pages are set aside, and memreg_test makes arenas of them: of 2 MiB, and of 1 GiB
where the guest is large enough for that. One line per case; exit code 1 if one fails, 77 with a reason where a guest cannot be
had.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CPUS = {0: [0, 1], 1: [2, 3]}  # of the nodes
MODEL_BYTES = 24 << 20
ADDRESS = "10.6.0.2"
# placement: (CPUs of the two lanes, together; node of the pool), None: not pinned, not bound
CASES = {"auto": (CPUS[1], 1), "node=0": (CPUS[0], 0), "node=1": (CPUS[1], 1), "cores=1,2": ([1, 2], None), "cores=0-1": ([0, 1], 0),
         "off": (None, None)}


def indexes(text):
    """The numbers of "0-1,3"."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


def write_model(path):
    header = json.dumps({"w": {"dtype": "U8", "shape": [MODEL_BYTES], "data_offsets": [0, MODEL_BYTES]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(256)) * (MODEL_BYTES // 256))


def lanes_of(process):
    """By the thread's name the CPUs that the kernel lets it run on."""
    found = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        status = (task / "status").read_text()
        name = re.search(r"^Name:\s*(.*)$", status, re.M)[1]
        if name.startswith("fairlead-lane"):
            found[name] = indexes(re.search(r"^Cpus_allowed_list:\s*(.*)$", status, re.M)[1])
    return found


def pages_of(process, fewest):
    """(policies of mappings that have one, pages by node of anonymous mappings with so many bytes)"""
    policies, pages = set(), collections.Counter()
    for line in pathlib.Path(f"/proc/{process.pid}/numa_maps").read_text().splitlines():
        counts = {int(node): int(count) for node, count in re.findall(r"\bN(\d+)=(\d+)", line)}
        policy = line.split()[1]
        if policy != "default":
            policies.add(policy.split("=")[0].split(":")[0])
        if "file=" not in line and sum(counts.values()) * 4096 >= fewest:
            pages.update(counts)
    return policies, pages


class Wrong(list):
    def want(self, what, seen, wanted):
        if seen != wanted:
            self.append(f"{what}: {seen}, not {wanted}")

    def check_lanes(self, process, cpus):
        lanes = lanes_of(process)
        self.want("lanes", len(lanes), 2)
        self.want("CPUs of the lanes", sorted(lanes.values()), [[0, 1, 2, 3]] * 2 if cpus is None else [[cpu] for cpu in cpus])

    def check_pages(self, process, node, fewest):
        policies, pages = pages_of(process, fewest)
        self.want("policies", policies, set() if node is None else {"prefer"})
        if not pages:
            self.append(f"no mapping holds {fewest} bytes")
        elif node is not None:
            self.want("nodes with pages", set(pages), {node})


def ended(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def check_server(build, folder, placement, cpus, node):
    """A model that is pushed lies where the pool would; /metrics say what is so."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    wrong = Wrong()
    server = subprocess.Popen([build / "bin/fairlead", "serve", "--listen", f"{ADDRESS}:0", "--transport", "tcp", "--lanes", "2",
                               "--placement", placement, "--metrics", "127.0.0.1:0", "--ready-file", ready],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                return [f"it does not start: {server.stderr.read()}"]
            time.sleep(0.05)
        where = json.loads(ready.read_text())
        pushed = subprocess.run([build / "bin/fairlead", "push", folder / "model.safetensors", where["listen"], "--transport", "tcp"],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        if pushed.returncode != 0:
            return [f"nothing is pushed: {pushed.stdout}{pushed.stderr}"]
        wrong.check_lanes(server, cpus)
        wrong.check_pages(server, node, MODEL_BYTES // 2)
        with urllib.request.urlopen(f"http://{where['metrics']}/metrics", timeout=30) as answer:
            metrics = answer.read().decode()
    finally:
        ended(server)
    says = {name: float(value) for name, value in re.findall(r"^(fairlead_(?:lane|pool)\S+) (\S+)$", metrics, re.M)}
    said = [says.get(f'fairlead_lane_cpu{{lane="{lane}"}}', "none") for lane in (0, 1)]
    wrong.want("CPUs in /metrics", sorted(said), cpus or [-1, -1])
    wrong.want("node of the pool in /metrics", says.get("fairlead_pool_node"), -1 if node is None else node)
    return wrong


def check_pool(build, placement, cpus, node):
    """What is allocated from an engine's pool."""
    wrong = Wrong()
    program = subprocess.Popen([build / "bin/fairlead-verified-traffic", "serve", f"{ADDRESS}:7400", "--transport", "tcp", "--lanes",
                                "2", "--placement", placement], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        program.stdout.readline()
        words = program.stdout.readline()
        wrong.check_lanes(program, cpus)
        wrong.check_pages(program, node, 4 << 20)
    finally:
        program.kill()
        program.wait()
    counted = re.search(r"pages of the pool by node: ([\d ]+)$", words)
    if counted is None:
        return wrong + [f"it says nothing of its pages: {words!r}"]
    if node is not None:
        wrong.want("nodes with pages by move_pages", {at for at, count in enumerate(counted[1].split()) if int(count)}, {node})
    return wrong


def set_aside(kilobytes, wanted):
    """Asks for so many huge pages of that size, by node; how many there are then."""
    there = {}
    for node, count in wanted.items():
        file = pathlib.Path(f"/sys/devices/system/node/node{node}/hugepages/hugepages-{kilobytes}kB/nr_hugepages")
        file.write_text(f"{count}\n")
        there[node] = int(file.read_text())
    return there


def check_huge_pages(build):
    """Arenas of memory pools, while huge pages are set aside. Gives what went wrong, and what was tried."""
    some = set_aside(2048, dict.fromkeys(CPUS, 8))
    large = set_aside(1048576, {max(CPUS): 1})
    sizes = ["2M"] + ["1G"] * any(large.values())
    done = subprocess.run([build / "tests/memreg_test", "--gtest_filter=*ArenaOfHugePages*", "--gtest_color=no"],
                          env={**os.environ, "FAIRLEAD_HUGE_PAGES": " ".join(sizes)}, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=180, check=False)
    set_aside(2048, dict.fromkeys(CPUS, 0))
    set_aside(1048576, {max(CPUS): 0})
    wrong = Wrong()
    wrong.want("2 MiB pages that the guest could set aside", some, dict.fromkeys(CPUS, 8))
    passed = len(re.findall(r"^\[       OK \]", done.stdout, re.M))
    if done.returncode != 0 or passed != len(sizes):
        wrong.append(f"memreg_test: exit code {done.returncode}, {passed} of {len(sizes)} passed:\n{done.stdout}{done.stderr}")
    return wrong, " and ".join(sizes)


def inside(build):
    nodes = {int(path.name[4:]): indexes((path / "cpulist").read_text())
             for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")}
    if nodes != CPUS:
        print(f"FAIL  the guest has other nodes: {nodes}")
        return 1
    wrong, sizes = check_huge_pages(build)
    print(f"{'FAIL' if wrong else 'pass'}  arenas of huge pages: {'; '.join(wrong) or f'of {sizes}, on the nodes that were asked for'}",
          flush=True)
    failed = int(bool(wrong))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_model(folder / "model.safetensors")
        for placement, (cpus, node) in CASES.items():
            for what, wrong in (("server", check_server(build, folder, placement, cpus, node)),
                                ("pool", check_pool(build, placement, cpus, node))):
                print(f"{'FAIL' if wrong else 'pass'}  --placement {placement}, {what}: "
                      f"{'; '.join(wrong) or 'threads and pages are where they should be'}", flush=True)
                failed += bool(wrong)
        shown = subprocess.run([build / "bin/fairlead", "devices", "--transport", "tcp", "--lanes", "2"], capture_output=True,
                               text=True, timeout=60, check=False)
        told = next((line for line in shown.stdout.splitlines() if line.startswith("Placement:")), shown.stdout + shown.stderr)
        good = "beside eth0" in told and "pool on node 1" in told
        print(f"{'pass' if good else 'FAIL'}  fairlead devices: {told}", flush=True)
        failed += not good
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--accel", default="tcg")
    parser.add_argument("--inside", action="store_true", help="this program's own other half")
    options = parser.parse_args()
    build = options.build.resolve()
    if options.inside:
        return inside(build)
    # With less, no node has a GiB in one piece. What the guest does not touch takes nothing here.
    plenty = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >= 12 << 30
    command = [ROOT / "scripts/vm/run", "--numa", "2", "--cpus", "4", "--memory", "6144" if plenty else "2048", "--seconds", "600",
               "--accel", options.accel, "--", sys.executable, __file__, "--inside", "--build", build]
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
