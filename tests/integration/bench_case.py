"""What tests of `fairlead bench` share: targets, reports, and what is true of every result."""

import json
import pathlib

from harness import Case

PATHS = {
    "tcp": ["--transport", "tcp"],
    "shm": ["--transport", "shm"],
    "verbs": ["--transport", "verbs:soft0"],
    "pvrdma": ["--transport", "verbs:soft0", "--soft-profile", "pvrdma"],
}


class BenchCase(Case):
    def target(self, *flags):
        server = self.start("bench", "--server", "127.0.0.1:0", *flags)
        server.wait_for("^listening on ")
        server.listen = server.lines[0].split()[-1]
        return server

    def bench(self, *words):
        report = self.path("bench.json")
        code, output = self.run_to_end("bench", *words, "--json", report)
        self.assertEqual(code, 0, output)
        return json.loads(pathlib.Path(report).read_text())

    def check(self, result):
        self.assertTrue(result["verified"])
        self.assertFalse(result["interrupted"])
        self.assertGreater(result["iterations"], 0)
        self.assertGreater(result["bytes_per_second"], 0)
        order = [result["latency_ns"][p] for p in ("min", "p50", "p90", "p99", "p999", "max")]
        self.assertEqual(order, sorted(order))
        self.assertGreater(order[0], 0)
        self.assertGreater(result["cpu_seconds_per_gb"]["initiator"], 0)
