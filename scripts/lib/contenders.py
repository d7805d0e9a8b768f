"""Fairlead's benchmarks and those of others on this host, one run each: an end on a core of its own, the same two for all.

A run raises Failed with the reason where its program cannot be had or does not do what it should.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import statistics
import tempfile
import time

import pairs
from compare import BUILD, ROOT

FAIRLEAD = BUILD / "bin/fairlead"
PATIENCE = 60
UCX_MEMORY = {"UCX_TLS": "posix,cma", "UCX_WARN_UNUSED_ENV_VARS": "n"}
UCX_TCP = {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"}


class Failed(Exception):
    pass


class Missing(Failed):
    """What would run is not installed."""


@dataclasses.dataclass
class Moved:
    rate: float       # GB/s
    gigabytes: float  # in all
    cpu_seconds: float | None = None  # of both ends, where they say it of just these


def pinned(core, *words):
    return ["taskset", "-c", str(core), *words]


def cores():
    """Two that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (allowed[0], allowed[0])


def shared_cache(one, other):
    """What caches the two cores share, for people."""
    for index in sorted(pathlib.Path(f"/sys/devices/system/cpu/cpu{one}/cache").glob("index*")):
        with contextlib.suppress(OSError):
            listed = (index / "shared_cpu_list").read_text(encoding="ascii").strip()
            members = set()
            for part in listed.split(","):
                first, _, last = part.partition("-")
                members.update(range(int(first), int(last or first) + 1))
            if other in members:
                return f"share the cache of level {(index / 'level').read_text(encoding='ascii').strip()}"
    return "share no cache that the system tells of"


def pieces(size):
    """How many, and of how many bytes each: a number, or NUMBERxBYTES for so many side by side."""
    number, _, each = str(size).rpartition("x")
    return int(number or 1), int(each)


class Contenders:
    """`seconds` of each run, about; `wheels`: as judge_stacks.wheels gives them."""

    def __init__(self, folder, seconds, wheels):
        self.folder, self.seconds, self.wheels = folder, seconds, wheels
        self.server_core, self.client_core = cores()

    def command(self, argv, environment=None):
        program = pairs.Program(argv, self.seconds + PATIENCE, environment)
        if program.wait() != 0:
            raise Failed(f"exit code {program.status} of {' '.join(program.argv)}: {pairs.last_words(program.output())}")
        return program.output()

    def pair(self, port, server, client, environment=None):
        """The client's output."""
        first = pairs.Program(pinned(self.server_core, *server), self.seconds + PATIENCE, environment)
        try:
            if not pairs.wait_until_listening(first, pairs.Side("here", [], "", "127.0.0.1"), port):
                raise Failed(f"{server[0]} does not listen: {pairs.last_words(first.output())}")
            return self.command(pinned(self.client_core, *client), environment)
        finally:
            first.wait(0.5)  # most end with their client; what they used counts once they have been waited for
            first.end()

    # ---- Fairlead

    def bench(self, what, *words, transport):
        target, report = f"127.0.0.1:{pairs.free_port()}", self.folder / "report.json"
        self.pair(int(target.split(":")[1]), [FAIRLEAD, "bench", "--server", target, "--once", "--transport", transport],
                  [FAIRLEAD, "bench", what, target, "--duration", self.seconds, "--json", report, "--transport", transport, *words])
        return json.loads(report.read_text(encoding="utf-8"))["results"][0]

    def bandwidth(self, op, size, transport="shm", places=1):
        """Of operations that go round so many places."""
        result = self.bench("bw", "--op", op, "--size", size, "--footprint", places * size, transport=transport)
        rate = result["bytes_per_second"] / 1e9
        return Moved(rate, rate * result["seconds"])

    def latency(self, op, size, *words, transport="shm"):
        return self.bench("lat", "--op", op, "--size", size, *words, transport=transport)["latency_ns"]["p50"] / 1e3

    # ---- others

    def ucx(self, test, size, iterations, environment):
        port = pairs.free_port()
        text = self.pair(port, ["ucx_perftest", "-p", port],
                         ["ucx_perftest", "127.0.0.1", "-p", port, "-t", test, "-s", size, "-n", iterations,
                          "-w", min(1000, iterations), "-f"], environment)
        rows = [line.split() for line in text.splitlines() if re.match(r"(Final:)? +\d", line)]
        if not rows:
            raise Failed(f"no result of ucx_perftest: {pairs.last_words(text)}")
        return [float(word) for word in rows[-1] if re.fullmatch(r"[\d.]+|inf|nan", word)]

    def ucx_latency(self, size, environment, expected=2):
        """`expected` microseconds a round trip, about."""
        return self.ucx("tag_lat", size, max(10, round(self.seconds / expected * 1e6)), environment)[1]

    def ucx_bandwidth(self, size, environment, expected=8):
        """`expected` GB/s, about. The rate is that over all of the run; ucx_perftest's other one is of its last part."""
        iterations = max(20, round(expected * 1e9 * self.seconds / size))
        return Moved(size / self.ucx("ucp_put_bw", size, iterations, environment)[3] / 1e3, iterations * size / 1e9)

    def fi_pingpong(self, size, provider, endpoint, expected=8):
        """Microseconds one way, the mean; `expected` microseconds, about."""
        port, iterations = pairs.free_port(), max(10, round(self.seconds / expected * 1e6 / 2))
        common = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", iterations, "-S", size]
        text = self.pair(port, [*common, "-B", port], [*common, "-P", port, "127.0.0.1"])
        last = text.strip().splitlines()[-1].split() if text.strip() else []
        if len(last) < 3 or not re.fullmatch(r"[\d.]+", last[-2]):
            raise Failed(f"no result of fi_pingpong: {pairs.last_words(text)}")
        return float(last[-2])

    def iperf3(self, *words):
        port, log = pairs.free_port(), self.folder / "iperf3.json"
        log.unlink(missing_ok=True)
        # It knows only whole seconds.
        amount = ["-t", max(1, round(self.seconds))] if self.seconds >= 0.1 else ["-n", "16M"]
        self.pair(port, ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port],
                  ["iperf3", "-c", "127.0.0.1", "-p", port, *amount, *words, "-J", "--logfile", log])
        received = json.loads(log.read_text(encoding="utf-8"))["end"]["sum_received"]
        return Moved(received["bits_per_second"] / 8e9, received["bytes"] / 1e9)

    def wheel(self, kind, size, environment=None):
        python, why = self.wheels[kind]
        if python is None:
            raise Missing(why)
        script, (number, each) = ROOT / "scripts/lib/wheel_rates.py", pieces(size)
        with tempfile.TemporaryDirectory(dir=self.folder) as meeting:
            common = [python, script, kind, meeting, number * each]
            target = pairs.Program(pinned(self.server_core, *common, "target"), self.seconds + PATIENCE, environment)
            try:
                end = time.monotonic() + PATIENCE / 2
                while not (pathlib.Path(meeting) / "target").exists():
                    if not target.running() or time.monotonic() > end:
                        raise Failed(f"{kind}'s target did not come up: {pairs.last_words(target.output())}")
                    time.sleep(0.05)
                text = self.command(pinned(self.client_core, *common, "initiator", self.seconds, size), environment)
                (pathlib.Path(meeting) / "go").touch()
                target.wait()
                result = json.loads(text[text.index('{"'):])[str(size)]
                written = int((pathlib.Path(meeting) / "written").read_text(encoding="ascii"))
            finally:
                target.end()
        if written != number * each:
            raise Failed(f"{kind} left {written} bytes at the target instead of {size}")
        took = result["seconds"]
        return Moved(number * each / statistics.fmean(took) / 1e9, number * each * len(took) / 1e9, result["cpu_seconds"])
