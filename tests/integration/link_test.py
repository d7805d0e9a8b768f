"""The link of scripts/link: what it counts is what crossed, and what it is asked for is what it does.

Its hosts are network namespaces of the test's own; where they cannot be made, it is skipped. Datagrams wait in sockets of
the kernel's, 50 in each, so that nothing is lost but by the link, however slow this process is.
"""

import ctypes
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

from harness import PATIENCE, PROGRAM, Case, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from links import HERE, THERE, Link  # noqa: E402
from namespaces import Host, enter, run  # noqa: E402

LINK = pathlib.Path(PROGRAM).with_name("fairlead-link")
IN_A_SOCKET, FIRST_PORT = 50, 9000
SO_TIMESTAMPNS = 35
CLONE_NEWNET = 0x40000000


def sockets_at(host, count):
    """UDP sockets of this process in another host's namespace, on ports from FIRST_PORT."""
    made = []

    def make():  # a thread of its own moves there, and no other
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{host.holder.pid}/ns/net", "rb") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        for number in range(count):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            one.bind((THERE, FIRST_PORT + number))
            made.append(one)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if len(made) != count:
        raise RuntimeError(f"{len(made)} of {count} sockets")
    return made


class Links(Case):
    def setUp(self):
        super().setUp()
        self.other = Host()
        self.addCleanup(self.other.stop)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "set", "lo", "up", at=self.other.at)

    def link(self, **settings):
        link = Link(self.other, program=LINK, **settings)
        self.addCleanup(link.stop)
        return link

    def cross(self, count, size=100, in_a_socket=IN_A_SOCKET, **settings):
        """Sends numbered datagrams: ([(number, seconds it took)...] by socket, the link's counts)."""
        link = self.link(**settings)
        sockets = sockets_at(self.other, -(-count // in_a_socket))
        sent = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(count):
                sent.append(time.time_ns())
                sender.sendto(struct.pack("!I", number).ljust(size, b"x"), (THERE, FIRST_PORT + number // in_a_socket))
        counts = link.stop()
        arrived = []
        for one in sockets:
            with one:
                here = []
                while True:
                    try:
                        data, (said,), _, _ = one.recvmsg(size + 1, 64)
                    except BlockingIOError:
                        break
                    self.assertEqual(len(data), size)
                    seconds, nanoseconds = struct.unpack("qq", said[2])
                    number, = struct.unpack("!I", data[:4])
                    here.append((number, seconds * 1_000_000_000 + nanoseconds - sent[number]))
                arrived.append(here)
        # Nothing else crosses, and nothing vanishes that is not counted.
        forth = counts["forth"]
        self.assertEqual((forth["frames"], forth["unread"]), (count, 0), counts)
        self.assertEqual(forth["bytes"], count * (size + 42))
        self.assertEqual(forth["delivered"] + forth["lost"] + forth["queue_full"] + forth["no_room"], count, counts)
        self.assertEqual(sum(map(len, arrived)), forth["delivered"], counts)
        self.assertEqual(counts["back"]["frames"], 0, counts)
        return arrived, forth

    def numbers(self, arrived):
        return [number for here in arrived for number, _ in here]

    def test_nothing_is_lost_by_default(self):
        arrived, counts = self.cross(1000)
        self.assertEqual(self.numbers(arrived), list(range(1000)))
        self.assertEqual(counts["delivered"], 1000)

    def test_what_is_lost_is_what_the_counts_say_and_follows_from_the_seed(self):
        arrived, counts = self.cross(1000, loss=0.1, seed=7)
        self.assertEqual(counts["lost"], 102)  # as tests/bench/wire_test.cc has it
        numbers = self.numbers(arrived)
        self.assertEqual(numbers, sorted(numbers))
        self.assertEqual((len(numbers), counts["overtaken"]), (898, 0))
        again, _ = self.cross(1000, loss=0.1, seed=7)
        self.assertEqual(self.numbers(again), numbers)
        other, _ = self.cross(1000, loss=0.1, seed=8)
        self.assertNotEqual(self.numbers(other), numbers)

    def test_a_delay_is_at_least_what_was_asked_for_and_keeps_the_order(self):
        arrived, counts = self.cross(500, delay="20ms")
        self.assertEqual(self.numbers(arrived), list(range(500)))
        self.assertGreaterEqual(min(took for here in arrived for _, took in here), 20_000_000)
        self.assertEqual(counts["overtaken"], 0)

    def test_reordering_is_counted_as_it_is_seen(self):
        ((*here,), *more), counts = self.cross(90, in_a_socket=90, delay="10ms", reorder=0.2, reorder_by="50ms", seed=3)
        self.assertEqual((len(here), more), (90, []))
        seen, most = 0, -1
        for number, took in here:
            self.assertGreaterEqual(took, 10_000_000)
            seen += number < most
            most = max(most, number)
        self.assertEqual(counts["overtaken"], seen)
        self.assertLessEqual(seen, counts["held_back"])
        self.assertGreater(counts["held_back"], 0)

    def test_a_full_queue_drops_the_tail_and_says_so(self):
        # Each takes 0.8 s of a line of 1,420 bit/s: of those that come before the first is across, three find room.
        link = self.link(rate="1420", queue="426")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(10):
                sender.sendto(b"x" * 100, (THERE, FIRST_PORT))
        counts = link.stop()["forth"]
        self.assertEqual(counts["frames"], 10, counts)
        self.assertEqual(counts["delivered"] + counts["queue_full"], 10, counts)
        self.assertGreaterEqual(counts["delivered"], 3, counts)
        self.assertGreater(counts["queue_full"], 0, counts)

    def test_the_command_line_runs_a_command_between_hosts(self):
        counts = self.path("counts.json")
        inside = ("$THERE python3 -c \"import socket; s = socket.create_server(('10.97.0.2', 9000)); print('up', flush=True); "
                  "c, a = s.accept(); print(a[0], len(c.makefile('rb').read()))\" > " + self.path("said") + " & "
                  f"until grep -q up {self.path('said')}; do sleep 0.05; done; "
                  "python3 -c \"import socket; s = socket.create_connection(('10.97.0.2', 9000)); s.sendall(bytes(3000000))\"; "
                  "wait; exit 5")
        done = subprocess.run([ROOT / "scripts/link", "--delay", "1ms", "--rate", "2Gbit", "--counts", counts, "--program",
                               LINK.resolve(), "--", "sh", "-c", inside], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)
        self.assertEqual(pathlib.Path(self.path("said")).read_text(), f"up\n{HERE} 3000000\n")
        forth = json.loads(pathlib.Path(counts).read_text())["forth"]
        self.assertEqual(forth["frames"], forth["delivered"] + forth["queue_full"] + forth["no_room"] + forth["not_taken"], forth)
        self.assertGreater(forth["bytes"], 3_000_000)
        # TCP crosses in pieces that a NIC would cut.
        self.assertGreater(forth["packets"], forth["frames"])
        for flags, words in ((["--delay", "fast"], "is no time"), (["--rate", "-1"], "is no rate"), (["--loss", "2"], "0 to 1")):
            done = subprocess.run([ROOT / "scripts/link", *flags, "--program", LINK.resolve(), "--", "true"],
                                  capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stdout + done.stderr)

    def wait_until_closed(self, address):
        """No TCP connection to it is left in this namespace, but such as wait for time to pass."""
        there, end = f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}", time.monotonic() + PATIENCE
        while time.monotonic() < end:
            rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
            if not any(row[2].startswith(there) and row[3] != "06" for row in rows):
                return
            time.sleep(0.05)
        self.fail(f"a connection to {address} does not end")

    def test_a_session_over_a_bad_link_verifies_what_it_moved(self):
        link = self.link(loss=0.01, reorder=0.01, delay="100us", mtu=9000)
        target = self.start("bench", "--server", f"{THERE}:0", "--once", "--transport", "verbs:soft0", within=self.other.at)
        target.wait_for("^listening on ")
        code, output = self.run_to_end("bench", "bw", target.lines[0].split()[-1], "--transport", "verbs:soft0", "--op", "write",
                                       "--size", "64K", "--iterations", "200")
        self.assertEqual(code, 0, output)
        self.assertEqual(target.wait(), 0, target.output)
        self.wait_until_closed(THERE)  # else what is not across yet would cross the next test's link
        counts = link.stop()
        self.assertGreater(counts["forth"]["lost"], 0, counts)
        self.assertGreater(counts["forth"]["overtaken"], 0, counts)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    enter()
    main()
