"""What the scripts share that measure one way of doing a thing beside another, in turn within one run."""

import math
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build/release"
MODES_EXPLAIN = 0.85  # of the variance of the logarithms; halves of a normal distribution explain 0.64 of it
MODES_APART = 1.25
FEWEST_IN_MODE = 2


def prepare(*setup_flags, targets=()):
    """Installs and builds what is missing, with the same helpers as the other scripts; no targets: all of them."""
    subprocess.run([ROOT / "scripts/setup", *setup_flags], check=True)
    build = " ".join(["build release", *targets])
    subprocess.run(["bash", "-c", f'. "{ROOT}/scripts/lib/common.sh"; {build}', "compare"], check=True)


def commit():
    """The commit of the sources as `git describe` names it, "-dirty" behind it if they differ from it."""
    return subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False).stdout.strip()


def cpu_model():
    """What this host's processor calls itself."""
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def congestion_control():
    """What this system's TCP connections have, unless they ask for another."""
    return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def interval(values, confidence=0.95):
    """An interval for the median of what the values are drawn from, from one of them to another: exact, whatever they are
    distributed like (order statistics, binomial). Few values give the widest that there is, and the confidence that it has."""
    values, count = sorted(values), len(values)

    def outside(rank):  # the chance that fewer than `rank` of them, or as few of the others, lie below the median
        return 2 * sum(math.comb(count, below) for below in range(rank)) / 2**count

    rank = max((each for each in range(1, count // 2 + 1) if outside(each) <= 1 - confidence), default=1)
    return values[rank - 1], values[count - rank], 1 - outside(rank)


def modes(values):
    """The two groups that the values fall into, or None: those that divide the logarithms best (least squares), if that
    explains most of their variance and the groups are far enough apart."""
    values = sorted(values)
    logs = [math.log(value) for value in values]

    def scatter(part):
        middle = statistics.fmean(part)
        return sum((each - middle) ** 2 for each in part)

    splits = range(FEWEST_IN_MODE, len(values) - FEWEST_IN_MODE + 1)
    if not splits or scatter(logs) == 0:
        return None
    at = min(splits, key=lambda split: scatter(logs[:split]) + scatter(logs[split:]))
    explained = 1 - (scatter(logs[:at]) + scatter(logs[at:])) / scatter(logs)
    low, high = values[:at], values[at:]
    apart = statistics.median(high) / statistics.median(low)
    return (low, high) if explained >= MODES_EXPLAIN and apart >= MODES_APART else None
