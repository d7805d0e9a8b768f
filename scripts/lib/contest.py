"""Questions that are asked of several contenders in turn, round by round, on a machine that others may use as well.

In each round all contenders of a question run one after the other. What processors' time other programs took meanwhile is
counted, and the rounds that count in the end are chosen by nothing else.
"""

import dataclasses
import os
import pathlib
import resource
import statistics
import sys
import time

from contenders import Failed, Moved

US = "Fairlead"
QUIET = 0.05  # of the processors' time


@dataclasses.dataclass
class Round:
    others: float = 0                           # of the processors' time, what programs of others took, 0 to 1
    values: dict = dataclasses.field(default_factory=dict)  # by contender
    cpu: dict = dataclasses.field(default_factory=dict)     # CPU-seconds per GB, by contender


@dataclasses.dataclass
class Question:
    name: str
    unit: str         # GB/s, or us, of which less is better
    contenders: dict  # name: what measures it: Moved, or microseconds
    why: str = ""     # known of why Fairlead is not first
    rounds: list = dataclasses.field(default_factory=list)
    idle: dict = dataclasses.field(default_factory=dict)   # name: (CPU-seconds, GB) of a run that moves next to nothing
    wrong: dict = dataclasses.field(default_factory=dict)  # name: why it was left out
    unavailable: bool = False  # this machine lacks what it takes, so that nobody could be asked

    def keep_quietest(self, count):
        self.rounds = sorted(self.rounds, key=lambda each: each.others)[:count]

    def values(self, name):
        return [each.values[name] for each in self.rounds]

    def cpu(self, name):
        return [each.cpu[name] for each in self.rounds if name in each.cpu]

    def others_took(self):
        return f"{statistics.median(each.others for each in self.rounds):.0%}"

    def advantage(self, name):
        """Of Fairlead over it, in each round."""
        rounds = zip(self.values(US), self.values(name))
        return [theirs / ours if self.unit == "us" else ours / theirs for ours, theirs in rounds]

    def best_other(self):
        others = [name for name in self.contenders if name not in (US, *self.wrong)]
        return min(others, key=lambda name: statistics.median(self.advantage(name)), default=None)


def cpu_seconds(*whose):
    used = [resource.getrusage(each) for each in whose or (resource.RUSAGE_CHILDREN,)]  # that have been waited for
    return sum(each.ru_utime + each.ru_stime for each in used)


class Watch:
    """What share of all processors' time other programs than these took since it was made."""

    def __init__(self):
        self.begin = self.times()

    @staticmethod
    def times():
        """(all, not idle, ours), proc(5)"""
        ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        every, idle = sum(ticks), ticks[3] + ticks[4]
        ours = cpu_seconds(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) * os.sysconf("SC_CLK_TCK")
        return every, every - idle, ours

    def others(self):
        every, busy, ours = (now - then for now, then in zip(self.times(), self.begin))
        return min(1.0, max(0.0, (busy - ours) / max(every, 1)))


def measure(question, name):
    """(value, CPU-seconds, GB, whether these CPU-seconds are those of moving so much and nothing else)"""
    before = cpu_seconds()
    result = question.contenders[name]()
    used = cpu_seconds() - before
    if not isinstance(result, Moved):
        return result, used, 0, False
    return (result.rate, used, result.gigabytes, False) if result.cpu_seconds is None else (result.rate, result.cpu_seconds, result.gigabytes, True)


def ask(question, names, warm):
    """A round. `warm`: the one before the first, of which only the cost of starting is kept."""
    watch, result = Watch(), Round()
    for name in names:
        if name in question.wrong:
            continue
        try:
            value, used, gigabytes, exact = measure(question, name)
        except (Failed, OSError, ValueError, LookupError) as problem:
            question.wrong[name] = (str(problem).splitlines() or [type(problem).__name__])[0][:200]
            print(f"{question.name}: {name}: left out: {question.wrong[name]}", file=sys.stderr, flush=True)
            continue
        if warm:
            question.idle[name] = (0, 0) if exact else (used, gigabytes)
            continue
        result.values[name] = value
        idle, idle_gigabytes = question.idle[name]
        if gigabytes > idle_gigabytes:
            result.cpu[name] = (used - idle) / (gigabytes - idle_gigabytes)
        print(f"{question.name}: {name}: {value:.2f} {question.unit}", file=sys.stderr, flush=True)
    result.others = watch.others()
    if not warm:
        question.rounds.append(result)


def ask_all(asked, count, minutes):
    """Rounds until the machine was quiet in `count` of them, or the minutes are over; as many, the quietest, are kept."""
    end = time.monotonic() + minutes * 60
    number = longest = 0
    while number < count or time.monotonic() + longest < end:
        loud = [question for question in asked
                if sum(each.others < QUIET for each in question.rounds) < count]
        if not loud:
            break
        begin = time.monotonic()
        for question in loud:
            names = list(question.contenders)
            first = number % len(names)
            ask(question, names[first:] + names[:first], warm=False)
        longest, number = max(longest, time.monotonic() - begin), number + 1
    for question in asked:
        question.keep_quietest(count)
