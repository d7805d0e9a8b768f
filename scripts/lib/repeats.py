"""Runs every test program a hundred times, in portions of rounds; those that have run least come first.

  scripts/test --portion MINUTES [--runs 100] [--parallel 3] [--page docs/results/repeats.md] [--name PATTERN] [--as-built COMMIT]
  scripts/test --portion 0 --add PAGE

The page is both the record and the result: for each program how often it passed and failed, and at which commits; it is written
after each run, so little is lost where a portion is cut off. What fails does not run again in its portion, and the
output is shown. Exit code: 0 if nothing failed in this portion.

--as-built: with the programs that are there, built of that commit, on a host that cannot build them; --add: what such a host's page says
counts here too.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

from compare import BUILD, ROOT, commit, cpu_model, prepare

ROW = re.compile(r"\| `(\w+)` \| (\d+) \| (\d+) \| ([^|]*) \|")
ROUND = 2  # times each program is run, before any runs again
LEAST_SECONDS = 60  # that are left for another round


@dataclasses.dataclass
class Program:
    passed: int = 0
    failed: int = 0
    commits: list = dataclasses.field(default_factory=list)


def read(page):
    programs = {}
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if found := ROW.fullmatch(line):
            programs[found[1]] = Program(int(found[2]), int(found[3]), [each for each in found[4].split(", ") if each])
    return programs


def notes(page):
    """What somebody has written below the table, which stays."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    return text[text.index("\n## "):] if "\n## " in text else ""


def write(page, programs, runs):
    done = sum(1 for each in programs.values() if each.passed >= runs)
    failed = [name for name, each in programs.items() if each.failed]
    lines = ["# Every test program, again and again", "",
             f"`scripts/test --portion MINUTES`; the last on {datetime.date.today()}, {cpu_model()}. Of {len(programs)} programs {done} have passed "
             f"{runs} times or more; {len(failed)} have failed at some commit. What boots a guest is not among them.", "",
             "| program | passed | failed | at commits |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {each.passed} | {each.failed} | {', '.join(each.commits)} |" for name, each in sorted(programs.items())]
    page.write_text("\n".join(lines) + "\n" + notes(page), encoding="utf-8")


def add(programs, others):
    for name, other in others.items():
        if each := programs.get(name):
            each.passed += other.passed
            each.failed += other.failed
            each.commits += [there for there in other.commits if there not in each.commits]


def there_are():
    listed = subprocess.run(["ctest", "--test-dir", BUILD, "-LE", "interop", "--show-only=json-v1"], capture_output=True, text=True,
                            check=True)
    return [test["name"] for test in json.loads(listed.stdout)["tests"]]


def run(chosen, times, options, until):
    """Yields (name, passed) of each run."""
    stop = time.strftime("%H:%M:%S", time.localtime(until))
    ctest = subprocess.Popen(["env", "--default-signal=INT,QUIT",  # as scripts/test says
                              "ctest", "--test-dir", BUILD, "--parallel", str(options.parallel), "--repeat", f"until-fail:{times}",
                              "--output-on-failure", "--stop-time", stop, "-R", f"^({'|'.join(chosen)})$"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in ctest.stdout:
        found = re.search(r"Test +#\d+: (\w+) \.+(?:   (Passed)|[\w ]*\*\*\*(?!Skipped|Not Run))", line)
        if found and (found[2] or time.time() < until - 1):  # at the end ctest kills what runs, and calls that a timeout
            yield found[1], found[2] is not None
        if not re.match(r"\s*(Start\s|Test\s|\d+/\d+\s)", line) or "***" in line:
            print(line, end="", flush=True)
    ctest.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=60, help="of this portion")
    parser.add_argument("--runs", type=int, default=100, help="of each program, over all portions")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/results/repeats.md")
    parser.add_argument("--name", default=".", metavar="PATTERN", help="only programs whose name matches")
    parser.add_argument("--as-built", metavar="COMMIT", help="nothing is built: what is there is of that commit")
    parser.add_argument("--add", type=pathlib.Path, metavar="PAGE", help="counts what that page says too")
    options = parser.parse_args()
    if not options.as_built:
        prepare("--dpdk")
    programs, here, names = read(options.page), options.as_built or commit(), there_are()
    for gone in set(programs) - set(names):
        del programs[gone]
    names = [name for name in names if re.search(options.name, name)]
    for name in names:
        programs.setdefault(name, Program())
    if options.add:
        add(programs, read(options.add))
        write(options.page, programs, options.runs)
    failures, skipped, until = [], set(), time.time() + options.minutes * 60
    while time.time() < until - LEAST_SECONDS:
        left = [name for name in names if programs[name].passed < options.runs and name not in {*failures, *skipped}]
        if not left:
            break
        least = min(programs[name].passed for name in left)
        chosen = [name for name in left if programs[name].passed < least + ROUND]  # who is behind comes first
        print(f"repeats: {len(chosen)} of {len(names)} programs; the least has passed {least} times", flush=True)
        skipped.update(chosen)
        for name, passed in run(chosen, min(ROUND, options.runs - least), options, until):
            skipped.discard(name)
            each = programs[name]
            each.passed += passed
            each.failed += not passed
            if here not in each.commits:
                each.commits.append(here)
            if not passed:
                failures.append(name)
            write(options.page, programs, options.runs)
    done = sum(1 for name in names if programs[name].passed >= options.runs)
    print(f"repeats: {done} of {len(names)} programs have passed {options.runs} times; failed now: {', '.join(failures) or 'none'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
