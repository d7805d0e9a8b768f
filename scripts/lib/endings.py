"""How a script ends when it is told to, and what it started with it."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None)


class ToldToEnd(SystemExit, KeyboardInterrupt):
    """Ends a script as sys.exit does. As a KeyboardInterrupt it ends unittest, too, which takes others for a test's failure."""


def end_in_order():
    """On SIGTERM and SIGHUP, too, what was begun is ended and put back first, as on Ctrl-C. What nohup ignores stays ignored."""
    def end(number, _):
        raise ToldToEnd(128 + number)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def with_its_starter():
    """A preexec_fn: the process is killed when the thread that started it is gone, however that went."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
