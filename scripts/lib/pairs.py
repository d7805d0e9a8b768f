"""Runs programs that come as a server and a client, each on its side (this host, a guest), with limits on everything.

Used by scripts/judges and tests/interop. A process that it starts is a session of its own and is ended with all that it
started, at the latest when its limit is over or the script ends. Output goes to files, so that nothing blocks on a full pipe.
"""

import atexit
import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import endings

# Seconds until a server listens that has no TCP socket by which to see it; an emulated machine starts programs slowly.
SETTLE_HERE, SETTLE_THERE = 1.5, 8
LISTENING = "0A"  # a socket's state in /proc/net/tcp, proc(5)

# A shell starts what runs in its background deaf to SIGINT, and so would be what is started here, which is ended by it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
endings.end_in_order()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def threads_of(session):
    """Where each thread of a session's processes is, a line each: its name, its state, what it waits for in the kernel."""
    lines = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            if stat.read_text(encoding="utf-8").rpartition(")")[2].split()[3] != str(session):
                continue
            for task in sorted(stat.parent.glob("task/*")):
                name, state = (task / "comm").read_text(encoding="utf-8").strip(), (task / "stat").read_text(encoding="utf-8")
                lines.append(f"thread {task.name} '{name}': {state.rpartition(')')[2].split()[0]}, "
                             f"{(task / 'wchan').read_text(encoding='ascii') or '0'}, "
                             f"system call {(task / 'syscall').read_text(encoding='ascii').split()[0]}")
    return "\n".join(lines)


def counters():
    """What this user's softroce devices have counted, where FAIRLEAD names the program that tells."""
    if "FAIRLEAD" not in os.environ:
        return ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        told = subprocess.run([os.environ["FAIRLEAD"], "devices", "--counters"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=10, check=False).stdout
        return "\n".join(line for line in told.splitlines() if not line.endswith(" 0"))
    return ""


class Program:
    """A process with a limit. `status` is its exit code once it has ended: 128 + N after signal N, 124 after the limit."""

    def __init__(self, argv, limit, environment=None):
        self.argv = [str(word) for word in argv]
        self._file = tempfile.TemporaryFile()
        self._deadline = time.monotonic() + limit
        self._process = None
        self._at_its_limit = ""  # what it did when that was over
        self.status = None
        try:
            self._process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=self._file, stderr=self._file,
                                             start_new_session=True, preexec_fn=endings.with_its_starter,
                                             env={**os.environ, **(environment or {})})
            atexit.register(self.end)
        except OSError as problem:
            self._file.write(f"{self.argv[0]}: {problem.strerror}\n".encode())
            self._file.flush()
            self.status = 127

    def wait(self, limit=None):
        """Its status, after at most `limit` seconds more and never past its own limit; it is ended then."""
        if self.status is None:
            end = min(self._deadline, time.monotonic() + limit) if limit is not None else self._deadline
            try:
                status = self._process.wait(max(0.01, end - time.monotonic()))
                status = status if status >= 0 else 128 - status
            except subprocess.TimeoutExpired:
                status = 124
                self._at_its_limit = f"at its limit:\n{threads_of(self._process.pid)}\n{counters()}"
            self._end_session()
            self.status = status
        return self.status

    def running(self):
        return self.status is None and self._process.poll() is None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def end(self):
        if self.status is None:
            self._end_session()
            self.status = 137

    def output(self):
        return os.pread(self._file.fileno(), 1 << 24, 0).decode("utf-8", "replace") + self._at_its_limit

    def _end_session(self):
        for number, patience in ((signal.SIGTERM, 1), (signal.SIGKILL, 5)):
            self.signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                if number == signal.SIGTERM:
                    self.signal(signal.SIGKILL)  # what it started and has not ended with it
                break
        atexit.unregister(self.end)


@dataclasses.dataclass
class Side:
    """Where a program runs: what goes before its name, the device that it is to use, the address that reaches it."""

    name: str
    prefix: list
    device: str
    address: str
    environment: dict = dataclasses.field(default_factory=dict)
    remote: list = dataclasses.field(default_factory=list)  # runs a plain command there; empty: this host
    gid: int = 1  # the index of the device's GID that the address is in; softroce's and rxe's first IPv4 one

    def start(self, argv, limit):
        return Program([*self.prefix, *argv], limit, self.environment)

    def listens(self, port):
        """Whether a TCP socket listens on that port there."""
        pattern = f": [0-9A-F]*:{port:04X} [0-9A-F]*:0000 {LISTENING}"
        if self.remote:
            command = [*self.remote, "grep", "-qs", pattern, "/proc/net/tcp", "/proc/net/tcp6"]
            return subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
        rows = "".join(pathlib.Path(f"/proc/net/tcp{six}").read_text(encoding="ascii") for six in ("", "6"))
        return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == LISTENING
                   for row in rows.splitlines() if ":" in row.split()[0])


@dataclasses.dataclass
class Outcome:
    passed: bool
    reason: str
    seconds: float
    output: str = ""
    skipped: bool = False


def wait_until_listening(server, side, port, patience=15):
    end = time.monotonic() + patience
    while server.running() and time.monotonic() < end:
        if side.listens(port):
            return True
        time.sleep(0.05)
    return False


def last_words(text, lines=1):
    """The last lines that say something, for a table's cell."""
    said = [line.strip() for line in text.splitlines() if line.strip().strip("-+|= ")]
    return " / ".join(said[-lines:])[:160]


def run_pair(server_side, server, client_side, client, limit, port=None, server_status=(0,)):
    """Server first; the client once `port` is listened on there (without one: after a while). Both must end with
    0, the server with one of `server_status` (None: whatever it says)."""
    begin = time.monotonic()
    target = server_side.start(server, limit)
    initiator = None
    try:
        if port is None:
            time.sleep(SETTLE_THERE if server_side.remote else SETTLE_HERE)
        elif not wait_until_listening(target, server_side, port):
            target.wait(0.1)
            return Outcome(False, f"server did not listen: {last_words(target.output())}", time.monotonic() - begin,
                           target.output())
        initiator = client_side.start(client, max(1, limit - (time.monotonic() - begin)))
        status = initiator.wait()
        target.wait(10 if status == 0 else 1)
        seconds = time.monotonic() - begin
        text = (f"$ {' '.join(target.argv)} &\n{target.output()}\nexit code {target.status}\n"
                f"$ {' '.join(initiator.argv)}\n{initiator.output()}\nexit code {status}\n")
        if status != 0:
            why = f"no end within {limit} s" if status == 124 else f"client exit code {status}"
            return Outcome(False, f"{why}: {last_words(initiator.output())}", seconds, text)
        if server_status is not None and target.status not in server_status:
            return Outcome(False, f"server exit code {target.status}: {last_words(target.output())}", seconds, text)
        return Outcome(True, "", seconds, text)
    finally:
        target.end()
        if initiator is not None:
            initiator.end()
