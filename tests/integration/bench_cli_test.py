"""`fairlead bench` over every path and operation: it ends, verifies, and its report says what it must."""

import json
import pathlib

from harness import SLOW, Case, main

PATHS = {
    "tcp": ["--transport", "tcp"],
    "verbs": ["--transport", "verbs:soft0"],
    "pvrdma": ["--transport", "verbs:soft0", "--soft-profile", "pvrdma"],
}


class Bench(Case):
    def bench(self, *words):
        report = self.path("bench.json")
        code, output = self.run_to_end("bench", *words, "--json", report)
        self.assertEqual(code, 0, output)
        return json.loads(pathlib.Path(report).read_text())

    def test_everything_locally(self):
        for path, flags in PATHS.items():
            for kind in ("bw", "lat"):
                for op in ("write", "read", "send"):
                    with self.subTest(path=path, kind=kind, op=op):
                        report = self.bench(kind, "--local", "--op", op, "--size", "8,5000,256K", "--duration", "0.1", *flags)
                        self.assertEqual(report["schema"], "fairlead.bench/1")
                        self.assertEqual((report["transport"], report["op"]), (flags[1], op))
                        self.assertNotIn("GID", report["device"])  # which of them depends on the peer: "path" says
                        self.assertEqual(report["packet_io"], None if path == "tcp" else "udp")
                        self.assertEqual([r["size_bytes"] for r in report["results"]], [8, 5000, 262144])
                        for result in report["results"]:
                            self.check(result)

    def check(self, result):
        self.assertTrue(result["verified"])
        self.assertGreater(result["iterations"], 0)
        self.assertGreater(result["bytes_per_second"], 0)
        order = [result["latency_ns"][p] for p in ("min", "p50", "p90", "p99", "p999", "max")]
        self.assertEqual(order, sorted(order))
        self.assertGreater(order[0], 0)
        self.assertGreater(result["cpu_seconds_per_gb"]["initiator"], 0)

    def test_iterations_and_no_verify(self):
        report = self.bench("bw", "--local", "--transport", "tcp", "--size", "4K", "--iterations", "77", "--no-verify")
        self.assertEqual(report["results"][0]["iterations"], 77)
        self.assertFalse(report["results"][0]["verified"])

    def test_two_processes_of_our_own(self):
        server = self.start("bench", "--server", "127.0.0.1:0", "--once")
        server.wait_for("^listening on ")
        address = server.lines[0].split()[-1]
        report = self.bench("bw", address, "--size", "64K", "--duration", "0.1", "--transport", "tcp")
        self.assertFalse(report["local"])
        self.assertEqual(server.wait(), 0, server.output)

    def test_loss_is_verified_too(self):
        report = self.bench("bw", "--local", "--transport", "verbs:soft0", "--packet-io", "udp,drop=0.01,reorder=0.01",
                            "--size", "64K", "--duration", "0.3")
        self.assertTrue(report["results"][0]["verified"])

    def test_a_target_that_dies_fails_the_run(self):
        server = self.start("bench", "--server", "127.0.0.1:0")
        server.wait_for("^listening on ")
        client = self.start("bench", "bw", server.lines[0].split()[-1], "--duration", "60", "--size", "64K")
        client.wait_for("size +count")
        server.kill()
        self.assertEqual(client.wait(20 * SLOW), 1, client.output)
        self.assertRegex(client.output, "bench: error")


if __name__ == "__main__":
    main()
