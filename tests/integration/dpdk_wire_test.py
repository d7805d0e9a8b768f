"""Ports over DPDK on the kernel's interfaces: links that go down and up again, interfaces that are deleted, RoCE v1.

Runs in a user and network namespace of its own, where everybody may make interfaces; where that is not allowed, or the
module for DPDK was not built, it is skipped.
"""

import fcntl
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

from harness import Case, main, random_model, write_safetensors

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
import capture  # noqa: E402  pylint: disable=wrong-import-position
from namespaces import SKIPPED, enter, run  # noqa: E402


def ip(*words):
    run("ip", *words)


class Capture:
    """Frames of an interface, as a pcap file."""

    def __init__(self, interface, path):
        self.path = path
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.1)
        self._stop = threading.Event()
        self._frames = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.is_set():
            try:
                self._frames.append(self._socket.recv(65536))
            except TimeoutError:
                pass

    def end(self):
        self._stop.set()
        self._thread.join()
        self._socket.close()
        with open(self.path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, capture.ETHERNET))
            for frame in self._frames:
                file.write(struct.pack("<IIII", 1, 0, len(frame), len(frame)) + frame)
        return self._frames


class Wire(Case):
    """A veth pair between two processes; the control connection is on loopback."""

    def setUp(self):
        super().setUp()
        ip("link", "add", "va", "mtu", "9000", "type", "veth", "peer", "name", "vb", "mtu", "9000")
        self.addCleanup(subprocess.run, ["ip", "link", "delete", "va"], capture_output=True)
        for interface in ("va", "vb"):
            ip("link", "set", interface, "up")

    @staticmethod
    def end(interface, *more):
        return ["--transport", "verbs:soft0", "--packet-io", f"dpdk:net_af_packet0,iface={interface}", *more]

    def model(self, megabytes=60):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(megabytes))
        return file

    def begin_push(self, *flags):
        """A push that is slow enough to be met in the middle, once its first packets have left."""
        server = self.serve(*self.end("va", *(flag for flag in flags if flag != "--no-failover")))
        words = self.end("vb", *flags)
        words[3] += ",delay_us=2000"
        report = self.path("report.json")
        push = self.start("push", self.model(), server.listen, "--json", report, *words)
        before = self.bytes_sent("vb")
        end = time.monotonic() + 60
        while self.bytes_sent("vb") < before + 5_000_000:
            self.assertLess(time.monotonic(), end, push.output + server.output)
            self.assertIsNone(push.process.poll(), push.output)
            time.sleep(0.005)
        return server, push, report

    @staticmethod
    def bytes_sent(interface):
        line = re.search(rf"^ *{interface}:(.*)$", pathlib.Path("/proc/net/dev").read_text(), re.MULTILINE)
        return int(line.group(1).split()[8])


class Links(Wire):
    def resumes(self, interface, seconds):
        # Retries for longer than the link is away: 8 of half a second and more.
        server, push, report = self.begin_push("--ack-timeout", "17", "--path-timeout", "20000")
        ip("link", "set", interface, "down")
        time.sleep(seconds)
        self.assertIsNone(push.process.poll(), "it ended before the link went: " + push.output)
        ip("link", "set", interface, "up")
        self.assertEqual(push.wait(), 0, push.output + "\n--- server:\n" + server.output)
        text = pathlib.Path(report).read_text()
        self.assertRegex(text, r'"transport": *"verbs:soft0"', text)
        self.assertRegex(push.output + server.output, "has no link, .*ip link set v[ab] up")

    def test_down_and_up_at_the_sender(self):
        self.resumes("vb", 1.5)

    def test_down_and_up_at_the_receiver(self):
        self.resumes("va", 1.5)

    def test_longer_than_the_retries_another_transport_goes_on(self):
        _, push, _ = self.begin_push()
        ip("link", "set", "vb", "down")
        self.assertEqual(push.wait(), 0, push.output)
        self.assertRegex(push.output, "changed: verbs:soft0 -> tcp: .*port 1 of soft0 is down")
        self.assertRegex(push.output, "58 of 58 tensors verified")

    def test_an_interface_that_is_deleted_ends_what_runs(self):
        _, push, _ = self.begin_push("--ack-timeout", "12", "--no-failover")
        ip("link", "delete", "va")
        self.assertNotEqual(push.wait(30), 0, push.output)
        self.assertRegex(push.output, "port 1 of soft0 is down: bring its network interface up")

    def test_a_port_that_is_down_says_so(self):
        ip("link", "set", "va", "down")
        down = "port 1 of soft0 is down, not active: bring its network interface up"
        self.assert_fails(self.run_to_end("bench", "bw", "127.0.0.1:9", *self.end("va")), 1, down)
        code, output = self.run_to_end("devices", "--packet-io", "dpdk:net_af_packet0,iface=va")
        self.assertEqual(code, 0)
        self.assertRegex(output, down)

    def test_a_small_mtu_and_an_address_of_the_hosts(self):
        ip("link", "set", "va", "mtu", "300")
        ip("address", "add", "10.7.0.1/24", "dev", "vb")
        for words, pattern in ((self.end("va"), "carries packets of 300 bytes, and RoCE v2 needs 320: raise its MTU"),
                               (self.end("nowhere"), "no network interface 'nowhere' in this network namespace"),
                               (["--transport", "verbs:soft0", "--packet-io",
                                 "dpdk:net_af_packet0,iface=vb,ip=10.7.0.1"], "ip=10.7.0.1 is this host's own address, on vb")):
            with self.subTest(words=words):
                result = self.run_to_end("serve", "--listen", "127.0.0.1:0", *words)
                self.assertNotEqual(result[0], 0)
                self.assertRegex(result[1], "cannot open soft0: packet_io dpdk: .*" + re.escape(pattern))


class Tap(Case):
    """The server's port is a tap, whose other end is the kernel's: there the client has a socket."""

    def test_down_and_up(self):
        retries = ["--transport", "verbs:soft0", "--ack-timeout", "17", "--path-timeout", "20000"]
        server = self.serve("--packet-io", "dpdk:net_tap0,iface=fltap,ip=10.8.0.2/24", *retries)
        ip("address", "add", "10.8.0.1/24", "dev", "fltap")
        ip("link", "set", "fltap", "up")
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(20))
        push = self.start("push", file, server.listen, "--packet-io", "udp,delay_us=20000", "--soft-address", "10.8.0.1",
                          *retries)
        before = Wire.bytes_sent("fltap")
        end = time.monotonic() + 60
        while Wire.bytes_sent("fltap") < before + 2_000_000:
            self.assertLess(time.monotonic(), end, push.output + server.output)
            time.sleep(0.005)
        ip("link", "set", "fltap", "down")
        time.sleep(1)
        self.assertIsNone(push.process.poll(), "it ended before the link went: " + push.output)
        ip("link", "set", "fltap", "up")
        ip("address", "replace", "10.8.0.1/24", "dev", "fltap")
        self.assertEqual(push.wait(), 0, push.output + "\n--- server:\n" + server.output)
        self.assertRegex(server.output, "net_tap0.* has no link")


class Devices(Case):
    def test_a_port_that_can_be_opened_once_is_opened_once(self):
        code, said = self.run_to_end("devices", "--packet-io", f"dpdk:net_memif0,role=server,socket={os.getpid()}")
        self.assertEqual(code, 0, said)
        self.assertRegex(said, "verbs:soft0 +yes +169.254")


class RoceV1(Wire):
    def run_over(self, index):
        taken = Capture("va", self.path("v1.pcap"))
        own = self.path("own.pcap")
        words = self.end("va", "--gid-index", index)
        words[3] += f",pcap={own}"
        try:
            server = self.start("bench", "--server", "127.0.0.1:0", *words)
            server.wait_for("listening")
            listen = re.search(r"127\.0\.0\.1:\d+", server.output).group()
            result = self.run_to_end("bench", "bw", listen, "--size", "64K", "--iterations", "40",
                                     *self.end("vb", "--gid-index", index))
        finally:
            frames = taken.end()
        self.assertEqual(result[0], 0, result[1] + server.output)
        kinds = {frame[12:14].hex() for frame in frames}
        self.assertIn("8915", kinds)
        self.assertNotIn("0800", kinds)
        for path in (taken.path, own):
            seen, wrong = capture.check_icrc(path)
            self.assertGreater(seen, 600)
            self.assertEqual(wrong, 0)
        if shutil.which("tshark"):
            self.assertEqual(capture.malformed(taken.path), [])

    def test_between_addresses(self):
        self.run_over("2")

    def test_between_ethernet_addresses(self):
        self.run_over("0")


class Folders(Case):
    """DPDK's runtime folders, which processes of other PID namespaces (containers) may share."""

    def test_a_folder_in_use_is_left_alone_whatever_its_owners_number(self):
        folder = pathlib.Path("/var/run/dpdk/fairlead-2000000000")  # no number of a process here
        try:
            folder.mkdir(parents=True)
        except OSError as why:
            self.skipTest(f"no folder can be made there: {why}")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        command = [os.environ["FAIRLEAD"], "devices", "--packet-io", "dpdk:net_null0"]
        with open(folder / "config", "w+b") as config:
            config.write(b"x" * 64)
            config.flush()
            fcntl.lockf(config, fcntl.LOCK_EX)  # as DPDK does while it runs
            subprocess.run(command, capture_output=True, timeout=60, check=False)
            self.assertTrue(folder.exists())
        subprocess.run(command, capture_output=True, timeout=60, check=False)
        self.assertFalse(folder.exists(), "left behind, nobody holds it")

    def test_processes_of_the_same_number_in_different_pid_namespaces_get_along(self):
        apart = ["unshare", "--pid", "--fork", "--kill-child", os.environ["FAIRLEAD"], "bench", "--server",
                 "127.0.0.1:0", "--transport", "verbs:soft0", "--packet-io", "dpdk:net_null0"]
        first, second = (subprocess.Popen(apart, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                         for _ in range(2))
        for process in first, second:
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.addCleanup(process.stdout.close)
            self.assertIn("listening", process.stdout.readline())


if __name__ == "__main__":
    enter()
    ip("link", "set", "lo", "up")
    probe = subprocess.run([os.environ["FAIRLEAD"], "devices", "--packet-io", "dpdk:net_null0"], capture_output=True,
                           text=True, timeout=60, check=False)
    if "there is no libfairlead-dpdk.so" in probe.stdout + probe.stderr:
        print("skipped: the module for DPDK was not built")
        sys.exit(SKIPPED)
    main()
