#!/usr/bin/env python3
"""A pipeline of a guest's on this host's device goes on, and is right, when either end has stood still for ten seconds.

  pipeline_test.py --build DIR [--pause 10] [--only PATTERN]

`fairlead serve --gpu host` runs here, fairlead-long-pipeline in a guest (scripts/vm) beside it: a sum that grows step by step
on the device, in three channels with fences between them. Halfway QEMU stops the guest, with whatever is under way, for
--pause seconds; then, in another run, the server's processes are stopped; over TCP and over softroce. The guest checks every
step's sum, which a step that ran twice would spoil for good; the server is to have counted as many commands as the guest gave,
and more after the pause than before. One line per case; exit code 1 if one fails, 77 with a reason where a guest cannot be had.
"""

import argparse
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
from pairs import Program, last_words  # noqa: E402  pylint: disable=wrong-import-position

IN_GUEST = [str(ROOT / "scripts/vm/guest")]
SECONDS = 4  # of the first half of the pipeline, by the guest's clock; at its end comes the pause


def qmp(command):
    done = subprocess.run([ROOT / "scripts/vm/qmp", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


class Server:
    def __init__(self, build, folder, transport):
        ready = pathlib.Path(folder) / "ready.json"
        ready.unlink(missing_ok=True)
        host = os.environ["FAIRLEAD_VM_HOST"]
        soft = [] if transport == "tcp" else ["--soft-address", host]
        self.program = Program([build / "bin/fairlead", "serve", "--gpu", "host", "--listen", f"{host}:0", "--transport", transport, *soft,
                                "--metrics", "127.0.0.1:0", "--drain", "1", "--ready-file", ready], 300)
        end = time.monotonic() + 60
        while not (ready.exists() and ready.read_text(encoding="utf-8")):
            if not self.program.running() or time.monotonic() > end:
                raise RuntimeError(f"the server does not start: {last_words(self.program.output(), 3)}")
            time.sleep(0.05)
        where = json.loads(ready.read_text(encoding="utf-8"))
        self.listen, self.metrics = where["listen"], where["metrics"]

    def commands(self):
        """Of all tenants."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            found = re.findall(r"^fairlead_tenant_commands_total\{.*\} (\S+)$", answer.read().decode(), re.M)
        return int(sum(map(float, found)))


def stand_still(who, server, pause):
    """Stops the guest or the server for so long; how many commands the server had counted by then."""
    if who == "guest":
        qmp("stop")
        status = qmp("query-status")["status"]
        if status != "paused":
            raise RuntimeError(f"QEMU says that the guest is {status}")
    else:
        server.program.signal(signal.SIGSTOP)  # with the sessions' processes
    time.sleep(pause / 2)
    counted = server.commands() if who == "guest" else None
    time.sleep(pause / 2)
    if who == "guest":
        qmp("cont")
        return counted
    server.program.signal(signal.SIGCONT)
    return server.commands()


def run_case(options, folder, transport, who):
    """(what was found, what is wrong or nothing)"""
    server = client = None
    try:
        server = Server(options.build, folder, transport)
        soft = [] if transport == "tcp" else [os.environ["FAIRLEAD_VM_GUEST"]]
        client = Program([*IN_GUEST, options.build / "bin/fairlead-long-pipeline", server.listen, SECONDS, transport, *soft], 200)
        while not (halfway := re.search(r"^halfway after (\d+) steps$", client.output(), re.M)):
            if not client.running():
                return "", f"the pipeline ended early: {last_words(client.output(), 3)}"
            time.sleep(0.02)
        counted = stand_still(who, server, options.pause)
        if client.wait() != 0:
            return "", f"exit code {client.status}: {last_words(client.output(), 3)}"
        said = json.loads(client.output().splitlines()[-1])
        found = (f"{said['steps']} steps over {said['transport']}, {halfway[1]} of them before the pause; {said['commands']} commands, "
                 f"{counted} at its end")
        at_the_end = server.commands()
        if at_the_end != said["commands"]:
            return found, f"the server counted {at_the_end} commands"
        if said["steps"] != 2 * int(halfway[1]) or not counted < at_the_end:
            return found, "there are not as many steps after the pause as before it"
        return found, ""
    except (RuntimeError, OSError) as problem:
        return "", str(problem)
    finally:
        if client is not None:
            client.end()
        if server is not None:
            server.program.signal(signal.SIGCONT)
            server.program.end()


def inside(options):
    failed = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        for transport, who in itertools.product(("tcp", "verbs:soft0"), ("guest", "server")):
            name = f"the {who} stands still, {transport}"
            if not re.search(options.only, name):
                continue
            begin = time.monotonic()
            found, wrong = run_case(options, folder, transport, who)
            print(f"{'FAIL' if wrong else 'pass'}  {time.monotonic() - begin:6.1f} s  {name}: "
                  + "; ".join(part for part in (wrong, found) if part), flush=True)
            ran, failed = ran + 1, failed + bool(wrong)
    return 1 if failed or not ran else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--pause", type=float, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # this program's own second half
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    command = [ROOT / "scripts/vm/run", "--beside", "--seconds", 400, "--", sys.executable, __file__, "--inside", "--build",
               options.build, "--pause", options.pause, "--only", options.only]
    return subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
