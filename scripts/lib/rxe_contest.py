"""Questions over Linux's rxe, which a guest has: all rounds of all of them are of one guest (rxe_in_guest.py)."""

import json
import re
import subprocess
import sys

from compare import ROOT
from contenders import FAIRLEAD
from contest import US, Question, Round, Watch

SIZE = 65536
SECONDS = 240  # of a guest
UNAVAILABLE = 77
ASKED = {"bandwidth": ("rxe in a guest: writes of 64 KiB to one place", "GB/s"), "latency": ("rxe in a guest: 8 bytes, one way", "us")}


def questions(pattern):
    why = "an emulated processor takes 50 to 100 times as long for instructions, and the engine has more of them for each message"
    return {asked: Question(name, unit, {US: None, "perftest": None}, why) for asked, (name, unit) in ASKED.items() if re.search(pattern, name)}


def take(question, figure):
    if "wrong" in figure:
        question.wrong[figure["who"]] = figure["wrong"]
        return
    while len(question.rounds) <= figure["round"]:
        question.rounds.append(Round())
    question.rounds[figure["round"]].values[figure["who"]] = figure["value"]
    print(f"{question.name}: {figure['who']}: {figure['value']:.3f} {question.unit}", file=sys.stderr, flush=True)


def ask(asked, rounds):
    """Fills in the rounds of `asked`, which questions() gave; where there can be no guest, why they are left out."""
    watch = Watch()
    command = [ROOT / "scripts/vm/run", "--rxe-pair", "--memory", "2048", "--seconds", SECONDS, "--", "scripts/lib/rxe_in_guest.py",
               FAIRLEAD, rounds, SIZE]
    done = subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=ROOT)
    for line in done.stdout.splitlines():
        if line.startswith('{"asked"'):
            figure = json.loads(line)
            if figure["asked"] in asked:
                take(asked[figure["asked"]], figure)
    others = watch.others()
    for question in asked.values():
        for each in question.rounds:
            each.others = others
        question.unavailable = done.returncode == UNAVAILABLE
        if done.returncode != 0 or not question.rounds:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            for name in [US] if question.rounds else question.contenders:
                question.wrong.setdefault(name, said[0][:200])
