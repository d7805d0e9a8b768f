#!/usr/bin/env python3
"""Runs in a guest with two hosts in it (scripts/vm/run --rxe-pair): Fairlead and Debian's perftest over Linux's rxe, in turn.

  scripts/lib/rxe_in_guest.py PROGRAM ROUNDS SIZE

PROGRAM is fairlead. Prints a line of JSON for each figure: what was asked (bandwidth of writes of SIZE bytes in GB/s, or latency
of 8 bytes in us), who was asked, and the figure; "wrong" in its place says why there is none.
"""

import itertools
import json
import subprocess
import sys
import time

ADDRESS, SERVER, CLIENT = "10.6.0.3", "rxe1", "rxe0"
AT_ONCE, WRITES, ROUND_TRIPS = 16, 400, 500
PATIENCE = 60
FIRST_PORT = 18_515


class Failed(Exception):
    pass


def output_of(words, server):
    """Of the end that measures; the other, `server`, ends by itself."""
    try:
        done = subprocess.run([*map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{words[0]} took more than {PATIENCE} s") from late
    finally:
        server.kill()
        server.wait()
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode} from {words[0]}: {(done.stderr or done.stdout).strip()[-200:]}")
    return done.stdout


def start(words):
    return subprocess.Popen([*map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def fairlead(program, kind, size, count, *flags):
    server = start([program, "bench", "--server", f"{ADDRESS}:0", "--once", "--transport", f"verbs:{SERVER}"])
    at = server.stdout.readline().split()[-1:]
    if not at:
        raise Failed("fairlead bench --server ended")
    report = output_of([program, "bench", kind, *at, "--transport", f"verbs:{CLIENT}", "--size", size, "--iterations", count, "--json", "-",
                        *flags], server)
    return json.loads(report)["results"][0]


def perftest(ports, program, size, count, *flags):
    """The figures of its only line: bytes, iterations, and what the program measures."""
    words = [program, "-x", 1, "-F", "-s", size, "-n", count, "-p", next(ports), *flags]
    server = start([*words, "-d", SERVER])
    time.sleep(2)  # it says nothing when it listens, and the client does not wait for it
    for line in output_of([*words, "-d", CLIENT, ADDRESS], server).splitlines():
        if line.split()[:2] == [str(size), str(count)]:
            return [float(word) for word in line.split()]
    raise Failed(f"{program} printed no figures")


def main():
    program, rounds, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ports = itertools.count(FIRST_PORT)
    bandwidth = {
        "Fairlead": lambda: fairlead(program, "bw", size, WRITES, "--depth", AT_ONCE, "--footprint", size)["bytes_per_second"] / 1e9,
        "perftest": lambda: perftest(ports, "ib_write_bw", size, WRITES, "-t", AT_ONCE)[3] * 2**20 / 1e9}
    latency = {
        "Fairlead": lambda: fairlead(program, "lat", 8, ROUND_TRIPS, "--arrival", "memory")["latency_ns"]["p50"] / 1e3,
        "perftest": lambda: perftest(ports, "ib_write_lat", 8, ROUND_TRIPS)[4]}
    for number in range(rounds):
        for asked, contenders in (("bandwidth", bandwidth), ("latency", latency)):
            for name in sorted(contenders, reverse=number % 2 == 1):
                figure = {"asked": asked, "round": number, "who": name}
                try:
                    figure["value"] = contenders[name]()
                except (Failed, OSError, ValueError, LookupError) as problem:
                    figure["wrong"] = str(problem)
                print(json.dumps(figure), flush=True)


main()
