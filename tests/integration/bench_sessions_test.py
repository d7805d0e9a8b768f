"""`fairlead bench bw` over several sessions at once: more of them, both directions, several targets, several initiators."""

import csv
import os
import pathlib

from bench_case import PATHS, BenchCase
from harness import main
from schemas import violations


class Sessions(BenchCase):
    def several(self, *words):
        """The only result, whose parts add up to it."""
        report = self.bench("bw", "--iterations", "200", "--size", "5000", *words)
        self.assertEqual(violations(report, "bench"), [])
        (result,) = report["results"]
        self.check(result)
        if result["parts"]:
            self.assertEqual(sum(part["iterations"] for part in result["parts"]), result["iterations"])
            total = sum(part["bytes_per_second"] for part in result["parts"])
            self.assertAlmostEqual(total / result["bytes_per_second"], 1, 6)
        return report, {part["name"]: part["iterations"] for part in result["parts"]}

    def test_sessions_over_lanes(self):
        for path, op in (("tcp", "write"), ("tcp", "send"), ("verbs", "read"), ("shm", "send")):
            with self.subTest(path=path, op=op):
                report, parts = self.several("--local", "--op", op, "--sessions", "3", "--lanes", "2", *PATHS[path])
                self.assertEqual((report["sessions"], report["initiators"], parts), (3, 1, {}))
                self.assertEqual(report["results"][0]["iterations"], 3 * 200)

    def test_both_directions(self):
        for path in PATHS:
            with self.subTest(path=path):
                report, parts = self.several("--local", "--bidirectional", "--sessions", "2", *PATHS[path])
                self.assertEqual((report["op"], report["sessions"]), ("write+read", 2))
                self.assertEqual(parts, {"to target": 400, "from target": 400})

    def test_many_to_one(self):
        for path in ("tcp", "verbs"):
            with self.subTest(path=path):
                report, parts = self.several("--local", "--initiators", "3", *PATHS[path])
                self.assertEqual(report["initiators"], 3)
                self.assertEqual(parts, {f"initiator {i}": 200 for i in range(3)})

    def test_two_that_look_at_memory_share_a_target(self):
        target = self.target("--transport", "tcp")
        words = ("bench", "lat", target.listen, "--transport", "tcp", "--arrival", "memory", "--size", "8", "--iterations", "200")
        clients = [self.start(*words) for _ in range(2)]
        for client in clients:
            self.assertEqual(client.wait(), 0, client.output)

    def test_one_to_many(self):
        targets = [self.target("--once", "--transport", "tcp") for _ in range(2)]
        places = [target.listen for target in targets]
        report, parts = self.several(*places, "--sessions", "2", "--transport", "tcp")
        self.assertEqual(report["targets"], places)
        self.assertEqual(parts, {f"to {place}": 400 for place in places})
        for target in targets:
            self.assertEqual(target.wait(), 0, target.output)

    def test_one_target_of_several_that_dies_fails_the_run(self):
        targets = [self.target("--transport", "tcp") for _ in range(2)]
        client = self.start("bench", "bw", *[target.listen for target in targets], "--transport", "tcp", "--duration", "600")
        client.wait_for("size +count")
        targets[1].kill()
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "bench: error")

    def test_cores_and_terms(self):
        cores = sorted(os.sched_getaffinity(0))
        first, last = str(cores[0]), str(cores[-1])
        report = self.bench("bw", "--local", "--iterations", "9", "--cores", f"{first}:{last}", "--lanes", "2", *PATHS["tcp"])
        self.assertEqual(violations(report, "bench"), [])
        self.assertEqual((report["ends"]["initiator"]["cores"], report["ends"]["target"]["cores"]), (first, last))
        self.assertEqual((report["lanes"], report["placement"], report["duration_seconds"]), (2, "off", None))
        self.assertEqual(report["link"]["name"], "lo")
        self.assertGreater(report["ends"]["target"]["socket_buffer_bytes"], 0)
        server = self.target("--once", "--cores", last, "--transport", "tcp")
        report = self.bench("lat", server.listen, "--iterations", "9", *PATHS["tcp"])
        self.assertEqual(report["ends"]["target"]["cores"], last)

    def test_columns_of_perftest(self):
        for kind, columns in (("bw", 5), ("lat", 9)):
            code, output = self.run_to_end("bench", kind, "--local", "--size", "8,4K", "--iterations", "50", "--columns",
                                           "perftest", *PATHS["tcp"])
            self.assertEqual(code, 0, output)
            rows = [line.split() for line in output[output.index("#bytes"):].splitlines()[1:]]
            self.assertEqual([row[:2] for row in rows], [["8", "50"], ["4096", "50"]])
            self.assertEqual({len(row) for row in rows}, {columns})

    def test_what_was_sent_again(self):
        # The path is not to be given up where the machine is so busy that nobody answers for a while.
        lossy = ("--packet-io", "udp,drop=0.01", "--ack-timeout", "16", *PATHS["verbs"])
        report = self.bench("bw", "--local", "--size", "64K", "--iterations", "500", *lossy)
        self.assertEqual(violations(report, "bench"), [])
        self.assertGreater(report["results"][0]["retransmissions"]["initiator"], 0)
        report = self.bench("bw", "--local", "--iterations", "9", *PATHS["shm"])
        self.assertEqual(report["results"][0]["retransmissions"], {"initiator": None, "target": None})

    def test_intervals_and_a_rate_are_of_all_sessions(self):
        table = self.path("bench.csv")
        code, output = self.run_to_end("bench", "bw", "--local", "--sessions", "4", "--rate", "200", "--duration", "3", "--size",
                                       "8", "--interval", "0.4", "--csv", table, *PATHS["tcp"])
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"(?m)^ +8 +0\.0 to ")
        (row,) = csv.DictReader(pathlib.Path(table).read_text().splitlines())
        self.assertEqual((row["sessions"], row["initiators"], row["targets"]), ("4", "1", "1"))
        self.assertLessEqual(int(row["iterations"]), 4 * 150)  # never more than were due


if __name__ == "__main__":
    main()
