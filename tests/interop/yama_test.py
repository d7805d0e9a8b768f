#!/usr/bin/env python3
"""Two processes of one user, where the kernel lets them read each other's memory and where Yama does not.

  yama_test.py --build DIR [--accel kvm|tcg]

In a guest (scripts/vm), whose kernel has Yama, for each kernel.yama.ptrace_scope: a model is pushed to a server over shared
memory and over softroce, as an unprivileged user, then by a process to the child that it starts, and as root. The data must be
right, and what says how it was copied must say what the kernel lets: the paths, `fairlead explain`, softroce's counters in
/metrics. Softroce's references are counted there, not taken from what it says. One line per case; exit code 1 if one fails, 77
with a reason where a guest cannot be had.
"""

import argparse
import json
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
SCOPE = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
NOBODY = 65534
MODEL_BYTES = 24 << 20
POOLS = "of pools one copy from memory that both map (memcpy), of other memory "
ONE_COPY, RINGS = "one copy, by who receives (process_vm_readv)", "two copies through rings: neither may read the other's memory"
FROM_CHILD = "one copy of what we receive, two through rings of what we send"  # who began may read its child, not the child it
# (scope, user): whether two processes, neither of which has begun the other, may read each other. 2 is for who may trace all.
CASES = {(0, NOBODY): True, (1, NOBODY): False, (2, NOBODY): False, (2, 0): True}


def write_model(path):
    header = json.dumps({"w": {"dtype": "U8", "shape": [MODEL_BYTES], "data_offsets": [0, MODEL_BYTES]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(256)) * (MODEL_BYTES // 256))


class Case(list):
    """What is wrong."""

    def __init__(self, build, folder, user):
        super().__init__()
        self.program, self.folder = build / "bin/fairlead", folder
        self.who = {"user": user, "group": user, "extra_groups": [], "stdin": subprocess.DEVNULL, "cwd": folder, "text": True}

    def run(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, timeout=120, check=False, **self.who)
        if done.returncode != 0:
            self.append(f"fairlead {' '.join(map(str, arguments))}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def want(self, what, text, wanted):
        if wanted not in text:
            self.append(f"{what} does not say '{wanted}': {text}")

    def start_server(self):
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        server = subprocess.Popen([self.program, "serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--ready-file", ready],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **self.who)
        end = time.monotonic() + 60
        while not ready.exists():
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                raise RuntimeError(f"the server does not start: {server.stderr.read()}")
            time.sleep(0.05)
        return server, json.loads(ready.read_text())

    def push(self, server, transport):
        said = self.run("push", self.folder / "model.safetensors", server, "--transport", transport)
        self.want(f"push over {transport}", said, "1 of 1 tensors verified")
        return said


def softroce(metrics):
    """What the server's devices have counted of references."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    counted = re.findall(r"^fairlead_softroce_(\w*reference\w*)_total\{[^}]*\} (\d+)$", text, re.M)
    return {name: sum(int(value) for each, value in counted if each == name) for name, _ in counted}


def check(case, may_read, scope):
    server, where = case.start_server()
    try:
        how = POOLS + (ONE_COPY if may_read else RINGS)
        case.want("the path over shm", case.push(where["listen"], "shm"), how)
        case.push(where["listen"], "verbs:soft0")
        counted = softroce(where["metrics"])
        if may_read != (counted["rcvd_by_reference"] > 0) or may_read == (counted["references_denied"] > 0):
            case.append(f"softroce counted {counted}")
        case.want("explain", case.run("explain", where["listen"]), how)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    # Both ends verify. The target is the initiator's child.
    for op in ("write", "read"):
        said = case.run("bench", "bw", "--local", "--transport", "shm", "--op", op, "--iterations", "20", "--json", case.folder / "report")
        report = json.loads((case.folder / "report").read_text())
        if not report["results"][0]["verified"]:
            case.append(f"bench --op {op}: not verified: {said}")
        case.want(f"bench --op {op}", report["path"], how if may_read or scope != 1 else POOLS + FROM_CHILD)


def inside(build):
    if not SCOPE.exists():
        print("yama_test: skipped: the guest's kernel has no Yama")
        return 77
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    failed = 0
    for (scope, user), may_read in CASES.items():
        SCOPE.write_text(f"{scope}\n")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            folder.chmod(0o777)
            write_model(folder / "model.safetensors")
            case = Case(build, folder, user)
            try:
                check(case, may_read, scope)
            except (OSError, RuntimeError, subprocess.TimeoutExpired, KeyError) as problem:
                case.append(repr(problem))
        print(f"{'FAIL' if case else 'pass'}  ptrace_scope {scope}, {'root' if user == 0 else 'an unprivileged user'}: "
              f"{'; '.join(case) or ('one copy' if may_read else 'through rings, and said so')}", flush=True)
        failed += bool(case)
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
    command = [ROOT / "scripts/vm/run", "--seconds", "400", "--accel", options.accel, "--", sys.executable, __file__, "--inside",
               "--build", build]
    return subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
