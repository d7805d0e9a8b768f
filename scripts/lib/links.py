"""A link with delay, rate, loss and reordering between two hosts of namespaces.py: TAP devices, and fairlead-link between them.

What the link can do is measured by scripts/measure_link; scripts/link is the same for a command line.
"""

import json
import pathlib
import re
import subprocess

import endings
from namespaces import run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build/release/bin/fairlead-link"
HERE, THERE = "10.97.0.1", "10.97.0.2"  # this program's host, the other
TIMES = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
RATES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Packets that the kernel keeps for the forwarder while that has no turn; what finds more is dropped, and counted.
TAP_QUEUE = 16384


def nanoseconds(text):
    """"1.5ms", "20us", "0" """
    found = re.fullmatch(r"([\d.]+)(ns|us|ms|s)", str(text)) or re.fullmatch(r"(0)()", str(text))
    if not found:
        raise ValueError(f"'{text}' is no time: a number and ns, us, ms or s, such as 20us")
    return round(float(found[1]) * TIMES.get(found[2], 1))


def bits_per_second(text):
    """"5Gbit", "100M", "0" (no limit)"""
    found = re.fullmatch(r"([\d.]+)([kmg]?)(bit)?", str(text).lower())
    if not found:
        raise ValueError(f"'{text}' is no rate: a number and K, M or G bits a second, such as 5Gbit")
    return round(float(found[1]) * RATES[found[2]])


def size(text):
    """"1M", "64K" """
    found = re.fullmatch(r"([\d.]+)([kmg]?)", str(text).lower())
    if not found:
        raise ValueError(f"'{text}' is no size: a number of bytes and K, M or G, such as 1M")
    return round(float(found[1]) * SIZES[found[2]])


class Link:
    """Joins this program's host and `other` until stop(), which says what became of the frames of each direction.

    Both ends know each other's address, so that no frame but the programs' own crosses. `segments`: TCP and UDP cross as
    frames of up to 64 KiB, as with a NIC that cuts them into packets; None: so where no fate but one of packets is asked for.
    """

    def __init__(self, other, delay="0", rate="0", queue=None, loss=0, reorder=0, reorder_by=None, seed=1, mtu=1500, spin="0",
                 segments=None, program=PROGRAM):
        self.other, self.counts = other, None
        rate, delay = bits_per_second(rate), nanoseconds(delay)
        # A queue of 10 ms of the rate, at least 64 KiB, takes what TCP sends at once, and shows what it costs to send more.
        queue = max(65536, rate // 800) if queue is None else size(queue)
        reorder_by = 100_000 if reorder_by is None else nanoseconds(reorder_by)
        if segments is None:
            segments = not loss and not reorder and (rate == 0 or rate >= 1_000_000_000)
        settings = {"delay": delay, "rate": rate, "queue": queue, "loss": loss, "reorder": reorder, "reorder_by": reorder_by,
                    "seed": seed, "segments": int(segments), "spin": nanoseconds(spin)}
        self.settings = {**settings, "mtu": mtu}
        words = [f"{name}={value}" for name, value in settings.items()]
        self.forwarder = subprocess.Popen([program, "fl-tap0", "fl-tap1", *words], stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, text=True, preexec_fn=endings.with_its_starter)
        try:
            if self.forwarder.stdout.readline() != "ready\n":
                raise RuntimeError(f"{program} did not start: exit code {self.forwarder.wait()}")
            self._join(mtu)
        except BaseException:
            self.forwarder.kill()
            self.forwarder.wait()
            raise

    def _join(self, mtu):
        run("ip", "link", "set", "fl-tap1", "netns", str(self.other.holder.pid))
        self.ends = (("fl-tap0", HERE, ()), ("fl-tap1", THERE, self.other.at))
        cards = []
        for name, address, at in self.ends:
            # IPv6 would speak by itself, and frames of its own would be counted.
            run("ip", "link", "set", name, "mtu", str(mtu), "txqueuelen", str(TAP_QUEUE), "addrgenmode", "none", at=at)
            run("ip", "addr", "add", f"{address}/24", "dev", name, at=at)
            run("ip", "link", "set", name, "up", at=at)
            cards.append(json.loads(run("ip", "-j", "link", "show", name, at=at))[0]["address"])
        for (name, _, at), (_, address, _), card in zip(self.ends, reversed(self.ends), reversed(cards)):
            run("ip", "neigh", "replace", address, "lladdr", card, "nud", "permanent", "dev", name, at=at)

    def stop(self):
        """What had been sent crosses first. {"forth": {...}, "back": {...}}, forth from this program's host.
        `unread` are packets that came faster than the forwarder read them; they are in no other count."""
        if self.counts is None:
            unread = [json.loads(run("ip", "-s", "-j", "link", "show", name, at=at))[0]["stats64"]["tx"]["dropped"]
                      for name, _, at in self.ends]
            self.forwarder.terminate()
            said, _ = self.forwarder.communicate(timeout=60 + self.settings["delay"] / 1e9)
            if self.forwarder.returncode != 0:
                raise RuntimeError(f"fairlead-link: exit code {self.forwarder.returncode}")
            self.counts = json.loads(said)
            for way, dropped in zip(("forth", "back"), unread):
                self.counts[way]["unread"] = dropped
        return self.counts
