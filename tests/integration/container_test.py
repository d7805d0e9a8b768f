"""What deploy/container/Containerfile sets and publishes is enough: a client that reaches the server through the ports of EXPOSE
alone, at an address that is not the server's own, pushes and pulls.

The container's network is a network namespace of the test's own; where none can be made, it is skipped.
"""

import contextlib
import pathlib
import re
import socket
import sys
import threading

from harness import Case, main, random_model, read_safetensors, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))
from namespaces import enter, second_host  # noqa: E402

OUTSIDE, INSIDE = "10.98.0.1", "10.98.0.2"


class Container:
    """What the file says."""

    def __init__(self):
        text = (ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
        (settings,) = re.findall(r"(?m)^ENV (.*)$", text)
        (ports,) = re.findall(r"(?m)^EXPOSE (.*)$", text)
        self.environment = dict(word.split("=", 1) for word in settings.split())
        copied = {place: str(ROOT / source) for source, place in re.findall(r"(?m)^COPY (deploy/\S+) (\S+)$", text)}
        self.environment["FAIRLEAD_CONFIG"] = copied[self.environment["FAIRLEAD_CONFIG"]]
        self.ports = [int(port) for port in ports.split()]
        (usual,) = re.findall(r"(?m)^#.* run .*$", text)
        self.published = [int(port) for port in re.findall(r"-p (?:[\d.]+:)?\d+:(\d+)", usual)]


class Published:
    """127.0.0.1's port, forwarded to the same one of the container, as podman's user-space proxy does it."""

    def __init__(self, port):
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # stop()
            while True:
                outside, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(outside,), daemon=True).start()

    def serve(self, outside):
        with outside, contextlib.suppress(OSError), socket.create_connection((INSIDE, self.port)) as inside:
            back = threading.Thread(target=self.forward, args=(inside, outside), daemon=True)
            back.start()
            self.forward(outside, inside)
            back.join()

    @staticmethod
    def forward(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class PublishedPorts(Case):
    def setUp(self):
        super().setUp()
        self.container = Container()
        self.inside = second_host(self, (OUTSIDE, "fl-outside"), (INSIDE, "fl-inside"))
        for port in self.container.ports:
            self.addCleanup(Published(port).stop)
        self.file = self.path("m.safetensors")
        write_safetensors(self.file, random_model(8))

    def serve_inside(self, **changed):
        settings = {**self.container.environment, "FAIRLEAD_STORE": self.path("store"), **changed}
        server = self.start("serve", env=settings, within=self.inside.at)
        server.wait_for(r'"message":"listening on ')
        server.listen = "127.0.0.1:7471"
        return server

    def test_they_are_enough_to_push_and_pull(self):
        self.assertEqual(sorted(self.container.published), sorted(self.container.ports))
        server = self.serve_inside()
        code, output, _ = self.push(server, self.file)
        self.assertEqual(code, 0, output + server.output)
        copy = self.path("copy")
        code, output = self.run_to_end("pull", server.listen, "m", copy)
        self.assertEqual(code, 0, output)
        self.assertEqual(read_safetensors(copy)[0], read_safetensors(self.file)[0])
        self.assertEqual(server.end(), 0, server.output)

    def test_a_benchmark_beside_it_takes_none_of_its_ports(self):
        server = self.serve_inside()
        bench = self.start("bench", "bw", "--local", "--iterations", "10", env=self.container.environment, within=self.inside.at)
        self.assertEqual(bench.wait(), 0, bench.output)
        self.assertEqual(server.end(), 0, server.output)

    def test_nothing_else_gets_through(self):
        """Else the other test would say nothing."""
        server = self.serve_inside(FAIRLEAD_TCP_PORT="0")
        self.assert_fails(self.push(server, self.file), 1, "cannot connect to 127.0.0.1:.*refused")


if __name__ == "__main__":
    enter()
    main()
