"""Two hosts with one Ethernet link between them: which address and MTU a path takes, and who says why it fails.

The hosts are network namespaces of the test's own; where they cannot be made, it is skipped.
"""

import json
import pathlib
import sys

from harness import Case, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from namespaces import enter, join_by_link, run, second_host  # noqa: E402

HERE, THERE = "10.99.0.1", "10.99.0.2"
SOFT = ["--transport", "verbs:soft0"]
QUICK = ["--size", "64K", "--iterations", "50"]


def ip(*words, host=()):
    return run("ip", *words, at=host)


class Hosts(Case):
    """This process is on one host, self.there begins a command on the other."""

    def setUp(self):
        super().setUp()
        self.other = second_host(self, (HERE, "fl-here"), (THERE, "fl-there"))
        self.there = self.other.at

    def mtus(self, here, there):
        ip("link", "set", "fl-here", "mtu", str(here))
        ip("link", "set", "fl-there", "mtu", str(there), host=self.there)

    def target(self, *flags, at=THERE):
        server = self.start("bench", "--server", f"{at}:0", "--once", *flags,
                            within=self.there if at == THERE else ())
        server.wait_for("^listening on ")
        server.listen = server.lines[0].split()[-1]
        return server

    def bench(self, at=THERE):
        server = self.target(at=at)
        code, output = self.run_to_end("bench", "bw", server.listen, *SOFT, *QUICK)
        server.end()
        self.assertEqual(code, 0, output)
        return output

    def test_a_path_takes_the_smaller_mtu_of_both_ends(self):
        for here, there, mtu in ((1500, 1500, 1024), (9000, 1500, 1024), (1500, 9000, 1024), (9000, 9000, 4096),
                                 (4300, 2200, 2048)):
            with self.subTest(here=here, there=there):
                self.mtus(here, there)
                output = self.bench()
                self.assertRegex(output, rf"soft0 {HERE} qpn \S+ -> {THERE} qpn \S+, mtu {mtu}\b")

    def test_a_path_takes_the_mtu_of_its_route(self):
        self.mtus(9000, 9000)
        ip("route", "add", f"{THERE}/32", "dev", "fl-here", "src", HERE, "mtu", "1500")
        output = self.bench()
        self.assertRegex(output, rf"{HERE} qpn \S+ -> {THERE} qpn \S+, mtu 1024\b")

    def test_processes_share_the_address_of_their_host(self):
        targets = [self.target(), self.target()]
        clients = [self.start("bench", "bw", target.listen, *SOFT, "--size", "64K", "--duration", "1")
                   for target in targets]
        for client in clients:
            self.assertEqual(client.wait(), 0, client.output)
            self.assertRegex(client.output, rf"soft0 {HERE} qpn \S+ -> {THERE} qpn \S+, mtu 1024\b")
        for target in targets:
            self.assertEqual(target.wait(), 0, target.output)

    def test_peers_on_one_host_meet_on_loopback(self):
        output = self.bench(at=HERE)
        self.assertRegex(output, r"soft0 127\.\S+ qpn \S+ -> 127\.\S+ qpn \S+, mtu 4096\b")

    def test_memory_is_shared_across_namespaces_only_where_a_directory_is_named(self):
        shared = ["--shm-directory", self.path("shared")]
        for flags, at, transport in (([], HERE, "shm"), ([], THERE, "tcp"), (shared, THERE, "shm")):
            with self.subTest(at=at, flags=flags):
                target = self.target(*flags, at=at)
                report = self.path("report.json")
                code, output = self.run_to_end("bench", "bw", target.listen, *QUICK, "--transport", "shm,tcp", *flags,
                                               "--json", report)
                self.assertEqual(code, 0, output)
                with open(report, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["transport"], transport)
                self.assertEqual(target.wait(), 0, target.output)
        target = self.target()
        result = self.run_to_end("bench", "bw", target.listen, *QUICK, "--transport", "shm", "--require", "shm")
        self.assert_fails(result, 1, "shm: the peer is of another host, user or network namespace")

    def test_the_end_that_asks_shows_the_other_ends_cause(self):
        link_local = ["--gid-index", "0"]
        target = self.target(*link_local)
        result = self.run_to_end("bench", "bw", target.listen, *SOFT, *QUICK, *link_local)
        self.assert_fails(result, 1, r"error: .*verbs:soft0: the peer says: .*cannot go to RTR: .*sgid_index 0 is fe80::"
                          r"\S+, which no socket can send from")

    def gain(self, *flags):
        """The terms that are not equal between tcp and softroce over the link."""
        target = self.target("--soft-address", THERE)
        report = self.path("gain.json")
        code, output = self.run_to_end("gain", target.listen, "--soft-address", HERE, "--candidate", "verbs:soft0", "--kind", "bw",
                                       "--sizes", "64K", "--quads", "1", "--block", "0.02", "--json", report, *flags)
        self.assertEqual(code, 0, output)
        self.assertEqual(target.wait(), 0, target.output)
        with open(report, encoding="utf-8") as file:
            document = json.load(file)
        self.assertEqual([document[side]["link"].split()[0] for side in ("baseline", "candidate")], ["fl-here", "fl-here"])
        unequal = {term["name"] for term in document["terms"] if not term["equal"]}
        return unequal - {"socket buffers"}  # what this machine's kernel allows is its own

    def test_terms_over_one_link_are_equal(self):
        for mtu in (1500, 9000):
            with self.subTest(mtu=mtu):
                self.mtus(mtu, mtu)
                self.assertEqual(self.gain(), set())
        self.assertEqual(self.gain("--mtu", "1024"), {"payload of a packet"})
        self.assertEqual(self.gain("--traffic-class", "104"), {"DSCP"})
        self.assertEqual(self.gain("--packet-io", "udp,drop=0.001"), {"link"})

    def test_devices_name_what_a_path_to_the_peer_would_use(self):
        self.mtus(1500, 9000)
        for peer in (THERE, self.target().listen):
            code, output = self.run_to_end("devices", "--peer", peer)
            self.assertEqual(code, 0, output)
            soft = [line for line in output.splitlines() if line.startswith("verbs:soft0")]
            self.assertRegex(soft[0], rf"^verbs:soft0 +yes +{HERE} +chosen: .*toward {THERE};.* GID 2, fl-here, MTU 1024$")
            for line in soft[1:]:
                self.assertRegex(line, r"^verbs:soft0 +no ")

    def test_counters_name_the_addresses_in_use(self):
        run_folder = {"XDG_RUNTIME_DIR": self.path("")}
        client = self.start("bench", "bw", self.target().listen, *SOFT, "--duration", "60", env=run_folder)
        client.wait_for("size +count")
        code, output = self.run_to_end("devices", "--counters", env=run_folder)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, rf"(?m)^soft0 127\.\S+, {HERE} process ")

    def test_data_goes_over_both_links(self):
        """Two devices at each end, of which each has an address on another link."""
        here, there = "10.98.0.1", "10.98.0.2"
        join_by_link(self, self.other, (here, "fl-here2"), (there, "fl-there2"))
        devices = ["--transport", "verbs:soft0,verbs:soft1", "--soft-address"]
        server = self.target(*devices, f"{THERE},{there}")
        flags = [*devices, f"{HERE},{here}", "--paths", "2", "--size", "4M", "--iterations", "100"]
        code, output = self.run_to_end("bench", "bw", server.listen, *flags)
        self.assertEqual(code, 0, output)
        self.assertEqual(server.wait(), 0, server.output)
        for link in ("fl-here", "fl-here2"):
            counters = json.loads(ip("-s", "-j", "link", "show", link))[0]["stats64"]
            self.assertGreater(counters["tx"]["bytes"], 100 * 4 * 2**20 / 10, output)


if __name__ == "__main__":
    enter()
    main()
