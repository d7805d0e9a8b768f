#!/usr/bin/env python3
"""Runs in a guest: takes commands from the host over the wire that joins them (scripts/vm/guest is the other end).

  agent.py ADDRESS

One connection per command: the host sends a line of JSON, {"argv": [...]}; back come lines {"output": TEXT} as it is
written, then {"status": N}. A host that hangs up ends its command, with all that it started. There is no protection:
the wire lies in a network namespace of its own.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading

PORT = 5470


def serve(connection):
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        def tell(**message):
            lines.write(json.dumps(message) + "\n")
            lines.flush()

        argv = json.loads(lines.readline())["argv"]
        try:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True)
        except OSError as problem:
            tell(output=f"{argv[0]}: {problem.strerror}\n")
            tell(status=127)
            return
        try:
            while True:
                ready, _, _ = select.select([child.stdout, connection], [], [])
                if connection in ready:  # the host says nothing more: it hung up
                    return
                text = os.read(child.stdout.fileno(), 65536)
                if not text:
                    break
                tell(output=text.decode("utf-8", "replace"))
            status = child.wait()
            tell(status=status if status >= 0 else 128 - status)
        except OSError:
            pass
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    listener = socket.create_server((sys.argv[1], PORT))
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
