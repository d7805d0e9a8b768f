"""What the integration tests share: files, servers, clients. Needs only the standard library.

The program under test is named by FAIRLEAD; FAIRLEAD_SLOW=1 (sanitizer builds) stretches what is timed.
Every process is started in a temporary folder, on free loopback ports, and is gone when its test ends.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

PROGRAM = os.environ.get("FAIRLEAD", "build/dev/bin/fairlead")
SLOW = 4 if os.environ.get("FAIRLEAD_SLOW") == "1" else 1
PATIENCE = 100 * SLOW  # seconds for anything that is not itself about time


def tensor(dtype, shape, data):
    return {"dtype": dtype, "shape": shape, "data": data}


def write_safetensors(path, tensors, metadata=None):
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, t in tensors.items():
        header[name] = {"dtype": t["dtype"], "shape": t["shape"], "data_offsets": [offset, offset + len(t["data"])]}
        offset += len(t["data"])
    write_raw(path, json.dumps(header).encode(), b"".join(t["data"] for t in tensors.values()))


def write_raw(path, header, data, length=None):
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header) if length is None else length) + header + data)


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", None)
    data = raw[8 + length :]
    return {n: tensor(t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}, metadata


def random_model(megabytes, seed=1):
    """A few large tensors, many small ones, a scalar and an empty one."""
    source = random.Random(seed)
    tensors = {f"layer{i}.bias": tensor("F32", [64], source.randbytes(256)) for i in range(40)}
    tensors["num_batches_tracked"] = tensor("I64", [], source.randbytes(8))
    tensors["nothing"] = tensor("F16", [0, 7], b"")
    tensors["odd"] = tensor("U8", [12345], source.randbytes(12345))
    count = max(1, megabytes // 4)
    for i in range(count):
        size = megabytes * 1_000_000 // count // 4 * 4
        tensors[f"layer{i}.weight"] = tensor("F32", [size // 4], source.randbytes(size))
    return tensors


class Process:
    """A running fairlead whose output lines are collected as they come. `within`: words that begin its command."""

    def __init__(self, *words, env=None, within=()):
        self.lines, self._changed = [], threading.Condition()
        self.process = subprocess.Popen(
            [*within, PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", env={**os.environ, **(env or {})})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def output(self):
        with self._changed:
            return "\n".join(self.lines)

    def wait_for(self, pattern, timeout=PATIENCE):
        """The seconds until a line matched."""
        start = time.monotonic()
        with self._changed:
            while not any(re.search(pattern, line) for line in self.lines):
                left = start + timeout - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no line like {pattern!r} within {timeout} s in:\n" + "\n".join(self.lines))
                self._changed.wait(min(left, 0.2))
                if self.process.poll() is not None and not self._reader.is_alive():
                    if not any(re.search(pattern, line) for line in self.lines):
                        raise AssertionError(f"ended without a line like {pattern!r}:\n" + "\n".join(self.lines))
        return time.monotonic() - start

    def wait(self, timeout=PATIENCE):
        code = self.process.wait(timeout)
        self._reader.join(5)
        return code

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.wait()
        self.process.stdout.close()
        return code


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fairlead-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return str(self.folder / name)

    def start(self, *words, env=None, within=()):
        process = Process(*words, env=env, within=within)

        def finish():
            process.end()
            self.assertNotRegex(process.output, "Sanitizer|runtime error:")

        self.addCleanup(finish)
        return process

    def serve(self, *flags, metrics=False, within=()):
        """A server; .listen is its address, .metrics_url the scrape address."""
        ready = self.path(f"ready-{random.getrandbits(64):x}.json")
        words = ["serve", "--listen", "127.0.0.1:0", "--ready-file", ready]
        server = self.start(*words, *(["--metrics", "127.0.0.1:0"] if metrics else []), *flags, within=within)
        end = time.monotonic() + PATIENCE
        while not os.path.exists(ready):
            self.assertIsNone(server.process.poll(), "serve ended:\n" + server.output)
            self.assertLess(time.monotonic(), end, "serve is not ready:\n" + server.output)
            time.sleep(0.02)
        facts = json.loads(pathlib.Path(ready).read_text())
        server.listen = facts["listen"]
        server.metrics_url = f"http://{facts['metrics']}/metrics"
        return server

    def run_to_end(self, *words, env=None, timeout=PATIENCE):
        """(exit code, output with errors)."""
        process = self.start(*words, env=env)
        code = process.wait(timeout)
        return code, process.output

    def push(self, server, file, *flags, env=None):
        """(exit code, output, report or None)."""
        report = self.path(f"push-{random.getrandbits(64):x}.json")
        code, output = self.run_to_end("push", file, server.listen, "--json", report, *flags, env=env)
        return code, output, json.loads(pathlib.Path(report).read_text()) if os.path.exists(report) else None

    def metric(self, server, name):
        text = urllib.request.urlopen(server.metrics_url, timeout=PATIENCE).read().decode()
        for line in text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        self.fail(f"no metric {name} in:\n{text}")

    def assert_fails(self, result, code, *patterns):
        self.assertEqual(result[0], code, result[1])
        for pattern in patterns:
            self.assertRegex(result[1], pattern)


def main():
    unittest.main(verbosity=2)
