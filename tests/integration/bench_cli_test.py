"""`fairlead bench` over every path and operation: it ends, verifies, and its report says what it must."""

import csv
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import xml.dom.minidom

from bench_case import PATHS, BenchCase
from harness import PATIENCE, PROGRAM, main, random_model, write_safetensors
from schemas import violations

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def cpu_ticks(pid):
    """Of all threads: 100 a second while one of them spins."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def free_ports(count):
    """Of loopback, until somebody takes them."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Bench(BenchCase):
    def test_everything_locally(self):
        for path, flags in PATHS.items():
            for kind in ("bw", "lat"):
                for op in ("write", "read", "send"):
                    with self.subTest(path=path, kind=kind, op=op):
                        report = self.bench(kind, "--local", "--op", op, "--size", "8,5000,256K", "--duration", "0.1", *flags)
                        self.assertEqual(violations(report, "bench"), [])
                        self.assertEqual((report["transport"], report["op"]), (flags[1], op))
                        self.assertNotRegex(report["device"], "GID|MTU")  # which depends on the peer: "path" says
                        self.assertEqual(report["packet_io"], None if path in ("tcp", "shm") else "udp")
                        self.assertEqual([r["size_bytes"] for r in report["results"]], [8, 5000, 262144])
                        for result in report["results"]:
                            self.check(result)

    def test_latency_of_writes_that_are_seen_in_memory(self):
        for path, flags in PATHS.items():
            with self.subTest(path=path):
                report = self.bench("lat", "--local", "--arrival", "memory", "--size", "1,8,64K", "--duration", "0.1", *flags)
                self.assertEqual(report["arrival"], "memory")
                for result in report["results"]:
                    self.check(result)

    def test_sums_over_ranks(self):
        for path in ("tcp", "verbs"):
            with self.subTest(path=path):
                report = self.bench("allreduce", "--local", "3", "--sizes", "8,64K,300000", "--iterations", "2", *PATHS[path])
                self.assertEqual(violations(report, "allreduce"), [])
                self.assertEqual(report["ranks"], 3)
                self.assertEqual([r["bytes"] for r in report["results"]], [8, 65536, 300000])
                self.assertTrue(all(len(r["seconds"]) == 2 for r in report["results"]))
                self.assertIn(PATHS[path][1], report["path"])
        self.assert_fails(self.run_to_end("bench", "allreduce"), 2, "--local N")
        self.assert_fails(self.run_to_end("bench", "allreduce", "--local", "1"), 2, "1 rank has nothing to sum")
        self.assert_fails(self.run_to_end("bench", "allreduce", "--ranks", "a:1,b:2"), 2, "OMPI_COMM_WORLD_RANK")
        self.assert_fails(self.run_to_end("bench", "allreduce", "--ranks", "a:1,b:2", "--rank", "2"), 2, "rank 2 of 2 ranks")

    def test_steps_of_training(self):
        with_bf16 = self.bench("training", "--local", "2", "--dtype", "BF16", "--compute-ms", "1", "--steps", "2",
                                      "--warm-up", "1", "--fusion", "8M", *PATHS["tcp"])
        self.assertEqual(violations(with_bf16, "training"), [])
        self.assertEqual((with_bf16["parameters"], with_bf16["ranks"], len(with_bf16["steps"])), (25_557_032, 2, 2))
        self.assertEqual(with_bf16["bytes_sent_per_step_and_rank"], 2 * 25_557_032)  # 2 (N-1)/N of 2 bytes each
        self.assertGreaterEqual(with_bf16["sums_per_step"], 7)
        alone = self.bench("training", "--local", "1", "--compute-ms", "1", "--steps", "1", "--warm-up", "0", *PATHS["tcp"])
        self.assertEqual(violations(alone, "training"), [])
        self.assertEqual(alone["bytes_sent_per_step_and_rank"], 0)
        self.assert_fails(self.run_to_end("bench", "training", "--local", "2", "--model", "alexnet"), 2, "resnet50, vgg16, bert-base")

    def test_ranks_that_a_launcher_started(self):
        places = [f"127.0.0.1:{port}" for port in free_ports(2)]
        report = self.path("ranks.json")
        words = ("bench", "allreduce", "--ranks", ",".join(places), "--sizes", "1000", "--iterations", "1", *PATHS["tcp"])
        other = self.start(*words, env={"SLURM_PROCID": "1"})
        code, output = self.run_to_end(*words, "--json", report, env={"OMPI_COMM_WORLD_RANK": "0"})
        self.assertEqual(code, 0, output)
        self.assertEqual(other.wait(), 0)
        self.assertEqual(json.loads(pathlib.Path(report).read_text())["ranks"], 2)

    def test_commands(self):
        for path, flags in PATHS.items():
            for where, way in (("turn", "in"), ("thread", "out")):
                with self.subTest(path=path, where=where):
                    report = self.bench("commands", "--local", "--duration", "0.1", "--executor", where, "--bulk", way, *flags)
                    self.assertEqual(violations(report, "commands"), [])
                    self.assertEqual((report["transport"], report["executor"], report["bulk"]), (flags[1], where, way))
                    self.assertGreater(report["commands_per_second"], 0)
                    self.assertGreater(report["bulk_bytes_per_second"], 0)
                    for times in ("command_age_ns", "sync_rtt_ns", "sync_rtt_under_bulk_ns", "blocking_call_ns",
                                  "spinning_call_ns"):
                        order = [report[times][p] for p in ("min", "p50", "p99", "max")]
                        self.assertEqual(order, sorted(order))
                        self.assertGreater(order[0], 0)
                    self.assertFalse(report["interrupted"])
        self.assert_fails(self.run_to_end("bench", "commands"), 2, "bench commands: give --local")

    def trace(self, *calls, **header):
        lines = [{"fairlead_trace": 1, "name": "made", "made": "by a test", **header}, *calls]
        file = self.path("trace.jsonl")
        pathlib.Path(file).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    def test_traces(self):
        file = self.trace({"gap_ns": 1000, "op": "launch", "bytes_out": 96, "bytes_back": 0, "blocking": False, "stream": 0},
                          {"gap_ns": 0, "op": "copy_in", "bytes_out": 3_000_000, "stream": 1},
                          {"gap_ns": 0, "op": "mark", "stream": 1},
                          {"gap_ns": 0, "op": "fence", "stream": 0, "on": 1},
                          *[{"gap_ns": 100, "op": "launch", "bytes_out": 4096}] * 100,
                          {"gap_ns": 0, "op": "copy_out", "bytes_back": 800, "stream": 1, "blocking": True},
                          {"gap_ns": 0, "op": "copy_out", "bytes_back": 2_000_000, "stream": 1},
                          {"gap_ns": 0, "op": "synchronize"}, device_ns=500)
        for path, flags in PATHS.items():
            for where in ("turn", "thread"):
                with self.subTest(path=path, where=where):
                    report = self.bench("trace", file, "--local", "--repeat", "3", "--executor", where, *flags)
                    self.assertEqual(report["schema"], "fairlead.bench.trace/1")
                    self.assertEqual((report["transport"], report["executor"]), (flags[1], where))
                    self.assertEqual(report["trace"], {
                        "file": file, "name": "made", "made": "by a test", "calls": 107, "streams": 2, "blocking": 2,
                        "bytes_out": 3_000_000 + 96 + 100 * 4096, "bytes_back": 2_000_800, "gap_ns": 11_000,
                        "device_ns": 50_500})
                    self.assertEqual({op: (of["count"], of["blocking"]) for op, of in report["by_op"].items()},
                                     {"launch": (101, 0), "copy_in": (1, 0), "copy_out": (2, 1), "mark": (1, 0),
                                      "fence": (1, 0), "synchronize": (1, 1)})
                    self.assertEqual((report["replays"], report["verified"], report["interrupted"]), (3, True, False))
                    for side in ("local_ns", "remote_ns"):
                        order = [report[side][p] for p in ("min", "p50", "max")]
                        self.assertEqual(order, sorted(order))
                        self.assertGreaterEqual(order[0], 50_500)  # what the device takes by itself
                    ratio = report["remote_ns"]["p50"] / report["local_ns"]["p50"]
                    self.assertAlmostEqual(report["overhead"], ratio - 1, 6)

    def test_a_trace_at_its_limits(self):
        file = self.trace({"op": "copy_in", "bytes_out": 64 << 20, "stream": 15}, {"op": "launch", "bytes_out": 4096, "stream": 15},
                          *[{"op": "mark", "stream": stream} for stream in range(16)] * 200,
                          *[{"op": "copy_out", "bytes_back": 1024, "stream": 15}] * 3000,
                          {"op": "copy_out", "bytes_back": 64 << 20, "stream": 15, "blocking": True})
        report = self.bench("trace", file, "--local", "--repeat", "1", "--transport", "tcp")
        self.assertEqual((report["trace"]["streams"], report["by_op"]["copy_out"]["count"], report["verified"]), (16, 3001, True))

    def test_traces_that_are_none(self):
        good = self.trace({"op": "launch"})
        for words, code, reason in (
                ([good], 2, "bench trace: give --local"),
                ([good, "--local", "--emulate"], 2, "bench trace: give --local"),
                ([good, "--local", "--duration", "1", "--repeat", "2"], 2, "--duration and --repeat exclude each other"),
                ([good, "--local", "--rtt", "1us"], 2, "--rtt is for --emulate"),
                ([good, "--emulate", "--repeat", "2"], 2, "--repeat is for replays"),
                ([good, "--emulate", "--rtt", "5"], 2, "'5' is not legal here .legal: 1us,5us"),
                ([good, "--emulate", "--bandwidth", "10Gbit"], 2, "'10Gbit' is not legal here .legal: 10G"),
                ([good, "--emulate", "--copy-bandwidth", "1G,2G"], 2, "--copy-bandwidth is one number"),
                ([good, "--emulate", "--json", "-", "--svg", "-"], 2, "--json - and --svg - exclude each other"),
                ([good, "--emulate", "--svg", "/nowhere/x.svg"], 1, "/nowhere/x.svg"),
                (["/nowhere/trace", "--emulate"], 1, "cannot open /nowhere/trace: No such file"),
                (["--local"], 2, "FILE is missing"),
                (["/nowhere/trace", "--local"], 1, "cannot open /nowhere/trace: No such file"),
                ([PROGRAM, "--local"], 1, "line 1: ")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("bench", "trace", *words), code, reason)
        wrong = self.trace({"op": "launch"}, {"op": "launch", "bytes_out": 5000})
        self.assert_fails(self.run_to_end("bench", "trace", wrong, "--local"), 1,
                          "line 3: field 'bytes_out' is 5000; legal is a whole number from 0 to 4096")

    def test_traces_are_emulated(self):
        file = self.trace(*[{"op": "launch", "device_ns": 100_000, "blocking": True}] * 3)
        drawing = self.path("curves.svg")
        report = self.bench("trace", file, "--emulate", "--rtt", "1us,30us", "--bandwidth", "1G,100G", "--svg", drawing)
        self.assertEqual(report["schema"], "fairlead.bench.trace.emulation/1")
        self.assertEqual((report["trace"]["calls"], report["trace"]["blocking"]), (3, 3))
        self.assertEqual((report["local_step_ns"], report["rule_rtt_ns"]), (300_000, 5_000))
        self.assertEqual([curve["bits_per_second"] for curve in report["curves"]], [1e9, 100e9])
        for curve in report["curves"]:
            self.assertEqual([point["rtt_ns"] for point in curve["points"]], [1_000, 30_000])
            # Each call: a buffer of 16 + 8 + 40 + 8 bytes, a reply of 16 + 24.
            crosses = 112 * 8e9 / curve["bits_per_second"]
            for point in curve["points"]:
                self.assertAlmostEqual(point["step_ns"], 3 * (100_000 + point["rtt_ns"] + crosses), 3)
            self.assertAlmostEqual(curve["longest_rtt_ns"] / (5_000 - crosses), 1, 2)
        self.assertEqual(xml.dom.minidom.parse(drawing).documentElement.tagName, "svg")
        code, output = self.run_to_end("bench", "trace", file, "--emulate", "--rtt", "1us,30us",
                                       env={"FAIRLEAD_LOCAL": "1", "FAIRLEAD_REPEAT": "3"})
        self.assertEqual(code, 0, output)
        self.assertRegex(output, "(?m)^ +30 us +30.[0-9]+ % +30.[0-9]+ % +30.[0-9]+ %$")
        self.assertRegex(output, "(?m)^5 % up to ")

    def test_the_traces_that_were_recorded(self):
        folder = ROOT / "bench/trace/recorded"
        wanted = {"remote_sgemm_chain": (100, 1, 79_488, 36_864), "remote_pipeline": (158, 3, 590_784, 524_288),
                  "remote_inference": (8, 1, 49_312, 16_384), "torch_gpt2_small_decode": (261, 1, 24_960, 8),
                  "torch_resnet50_inference": (287, 1, 2_435_808, 16_000), "torch_bert_base_training": (1137, 2, 141_568, 5)}
        self.assertEqual({file.stem for file in folder.glob("*.jsonl")}, set(wanted))
        for name, (calls, blocking, out, back) in wanted.items():
            with self.subTest(name):
                trace = self.bench("trace", folder / f"{name}.jsonl", "--emulate", "--rtt", "5us")["trace"]
                self.assertEqual((trace["name"], trace["calls"], trace["blocking"], trace["bytes_out"], trace["bytes_back"]),
                                 (name, calls, blocking, out, back))

    def test_the_traces_of_models(self):
        script = ROOT / "scripts/make_traces"
        done = subprocess.run([script, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        counts = json.loads(subprocess.run([script, "--counts"], capture_output=True, text=True, check=True).stdout)
        # What their descriptions add up to.
        self.assertEqual({name: (each["launches"], each["blocking"]) for name, each in counts.items()},
                         {"gpt2_small_decode": (7 + 12 * 13, 2), "resnet50_inference": (53 + 53 + 49 + 16 + 3, 1),
                          "bert_base_training": (196 + 381 + 7, 1)})
        self.assertEqual(counts["resnet50_inference"]["bytes_back"], 16_000)
        page = (ROOT / "docs/benchmarks.md").read_text()
        for name, wanted in counts.items():
            with self.subTest(name=name):
                self.assertRegex(page, rf"\| `{name}` \| .* \| {wanted['launches']} \| {wanted['blocking']} \| "
                                       rf"{wanted['bytes_out']:,} \| {wanted['bytes_back']:,} \| {wanted['gap_ns'] / 1e6:.2f} ms "
                                       rf"\| {wanted['device_ns'] / 1e6:.2f} ms \|")
                file = ROOT / f"bench/trace/models/{name}.jsonl"
                self.assertLess(file.stat().st_size, 50_000)
                trace = self.bench("trace", file, "--emulate")["trace"]
                self.assertEqual(trace["name"], name)
                self.assertEqual({key: trace[key] for key in wanted if key != "launches"},
                                 {key: value for key, value in wanted.items() if key != "launches"})
        report = self.bench("trace", ROOT / "bench/trace/models/gpt2_small_decode.jsonl", "--local", "--repeat", "1",
                            "--transport", "tcp")
        self.assertEqual((report["by_op"]["launch"]["count"], report["verified"]), (163, True))

    def test_a_trace_is_interrupted(self):
        file = self.trace({"op": "launch", "device_ns": 1000, "blocking": True})
        report = self.path("report.json")
        client = self.start("bench", "trace", file, "--local", "--transport", "tcp", "--duration", "1000", "--json", report)
        children = pathlib.Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        end = time.monotonic() + PATIENCE
        while not children.read_text() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1)  # it may be before the first replay is over: then there are none
        os.kill(client.process.pid, signal.SIGINT)
        code = client.wait()
        if os.path.exists(report):
            self.assertEqual(code, 130, client.output)
            self.assertTrue(json.loads(pathlib.Path(report).read_text())["interrupted"])
        else:  # before it listened to signals
            self.assertEqual(code, -signal.SIGINT, client.output)

    def test_commands_are_interrupted(self):
        report = self.path("report.json")
        client = self.start("bench", "commands", "--local", "--transport", "tcp", "--duration", "1000", "--json", report)
        children = pathlib.Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children")
        end = time.monotonic() + PATIENCE
        while len(children.read_text().split()) < 2 and time.monotonic() < end:  # both other ends
            time.sleep(0.05)
        time.sleep(1)
        os.kill(client.process.pid, signal.SIGINT)
        code = client.wait()
        if os.path.exists(report):
            self.assertEqual(code, 130, client.output)
            document = json.loads(pathlib.Path(report).read_text())
            self.assertEqual(violations(document, "commands"), [])
            self.assertTrue(document["interrupted"])
            self.assertIsNone(document["sync_rtt_ns"], "it was not measured yet")
        else:  # before it listened to signals
            self.assertEqual(code, -signal.SIGINT, client.output)

    def test_iterations_and_no_verify(self):
        report = self.bench("bw", "--local", "--transport", "tcp", "--size", "4K", "--iterations", "77", "--no-verify")
        self.assertEqual(report["results"][0]["iterations"], 77)
        self.assertFalse(report["results"][0]["verified"])

    def test_repeats_intervals_and_csv(self):
        table = self.path("bench.csv")
        report = self.path("bench.json")
        code, output = self.run_to_end("bench", "bw", "--local", "--transport", "tcp", "--size", "4K,64K", "--duration", "0.3",
                                       "--repeat", "3", "--interval", "0.1", "--csv", table, "--json", report)
        self.assertEqual(code, 0, output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "bench"), [])
        self.assertRegex(output, r"(?m)^ +4K +0\.0 to [0-9.]+ s +[0-9.]+ MB/s")
        self.assertRegex(output, r"(?m)^ +of +3 runs ")
        rows = list(csv.DictReader(pathlib.Path(table).read_text().splitlines()))
        for result, row in zip(document["results"], rows, strict=True):
            self.assertEqual(result["repeats"]["count"], 3)
            self.assertLess(result["repeats"]["bytes_per_second"]["low"], result["repeats"]["bytes_per_second"]["high"])
            self.assertGreaterEqual(result["seconds"], 0.9)
            self.assertEqual((int(row["size_bytes"]), int(row["iterations"]), row["verified"]),
                             (result["size_bytes"], result["iterations"], "true"))
            self.assertAlmostEqual(float(row["bytes_per_second"]) / result["bytes_per_second"], 1, 6)
            for end in ("initiator", "target"):
                cpu = result["cpu"][end]
                self.assertAlmostEqual(cpu["cores"], (cpu["user_seconds"] + cpu["system_seconds"]) / result["seconds"], 6)

    def test_a_fixed_rate_counts_from_when_each_was_due(self):
        for kind, op in (("bw", "write"), ("bw", "send"), ("lat", "write"), ("lat", "read")):
            with self.subTest(kind=kind, op=op):
                report = self.bench(kind, "--local", "--transport", "tcp", "--op", op, "--size", "4K", "--rate", "200", "--duration", "1")
                self.assertEqual(violations(report, "bench"), [])
                self.assertTrue(report["latency_kind"].endswith("_since_due"))
                self.assertEqual(report["rate"], 200)
                result = report["results"][0]
                self.assertLessEqual(result["iterations"], 200)  # never more than were due
                self.check(result)

    def test_a_rate_that_is_too_high_shows_as_latency(self):
        # At most one is under way, and each takes microseconds: of a billion a second nearly all come late, ever later.
        report = self.bench("bw", "--local", "--transport", "tcp", "--size", "64", "--rate", "1e9", "--duration", "0.3", "--depth", "1")
        result = report["results"][0]
        self.assertGreater(result["latency_ns"]["max"], 0.1e9)

    def test_what_carries_it_is_said(self):
        # Packets of softroce between processes of one host cross no network unless they are told to.
        for words, link in (("tcp", "tcp over lo, MTU [0-9]+"), ("verbs:soft0", "verbs:soft0 over memory of this host"),
                            ("verbs:soft0 --packet-io udp,local=sockets", "verbs:soft0 over lo, MTU [0-9]+"), ("shm", "shm over memory of this host")):
            with self.subTest(words=words):
                code, output = self.run_to_end("bench", "bw", "--local", "--size", "4K", "--iterations", "20", "--transport", *words.split())
                self.assertEqual(code, 0, output)
                self.assertRegex(output, f"(?m)^{link}$")

    def test_batches_are_requests_of_one_transfer(self):
        # 1,000 in batches of 7: 143 of them.
        for op in ("write", "read", "write+read"):
            with self.subTest(op=op):
                words = ["--bidirectional"] if op == "write+read" else ["--op", op]
                report = self.bench("bw", "--local", "--transport", "verbs:soft0", "--size", "64", "--depth", "30", "--batch", "7", "--footprint", "2K",
                                    "--iterations", "1000", *words)
                self.assertEqual(violations(report, "bench"), [])
                self.assertEqual((report["batch"], report["depth"]), (7, 30))
                result = report["results"][0]
                self.assertEqual(result["iterations"], 1001 * (2 if op == "write+read" else 1))
                self.assertTrue(result["verified"])

    def test_transports_are_compared_in_turn(self):
        document = self.bench("bw", "--local", "--compare", "tcp,verbs:soft0,shm", "--size", "4K,64K", "--duration", "0.1")
        self.assertEqual(violations(document, "bench"), [])
        self.assertEqual([report["transport"] for report in document["transports"]], ["tcp", "verbs:soft0", "shm"])
        for report in document["transports"]:
            self.assertEqual([result["size_bytes"] for result in report["results"]], [4096, 65536])
            for result in report["results"]:
                self.check(result)
                self.assertEqual(result["repeats"]["count"], 3)

    def test_a_target_that_comes_late_is_waited_for(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        self.assert_fails(self.run_to_end("bench", "bw", place, "--transport", "tcp", "--connect-timeout", "1000"), 1, "cannot reach")
        client = self.start("bench", "bw", place, "--transport", "tcp", "--duration", "0.1", "--wait", str(PATIENCE))
        client.wait_for("^waiting for ")
        server = self.start("bench", "--server", place, "--once", "--transport", "tcp")
        self.assertEqual(client.wait(), 0, client.output)
        self.assertEqual(server.wait(), 0, server.output)

    def test_names_the_link_that_it_has(self):
        for apart in (False, True):  # ends that do not meet in memory have sockets
            with self.subTest(apart=apart):
                places = [self.path(f"{name}-{apart}") for name in ("here", "there" if apart else "here")]
                for place in set(places):
                    os.mkdir(place, 0o700)
                server = self.start("bench", "--server", "127.0.0.1:0", "--once", "--transport", "verbs:soft0",
                                    env={"FAIRLEAD_SOFT_DIRECTORY": places[1]})
                server.wait_for(r"127\.0\.0\.1:\d+")
                address = re.search(r"127\.0\.0\.1:\d+", server.output)[0]
                code, output = self.run_to_end("bench", "bw", address, "--transport", "verbs:soft0", "--iterations", "100",
                                               env={"FAIRLEAD_SOFT_DIRECTORY": places[0]})
                self.assertEqual(code, 0, output)
                self.assertIn("over lo" if apart else "over memory of this host", output)
                self.assertEqual(server.wait(), 0, server.output)

    def test_wrong_usage_of_what_is_newer(self):
        for words, reason in (
                (["bw", "--local", "--compare", "tcp"], "two or more transports"),
                (["bw", "--local", "--compare", "tcp,tcp"], "two or more transports"),
                (["bw", "--local", "--compare", "tcp,shm", "--transport", "tcp"], "--transport and --compare exclude each other"),
                (["bw", "--local", "--wait", "3"], "--wait is for a bench --server elsewhere"),
                (["bw", "--local", "--rate", "0"], "'0' is not legal"),
                (["bw", "--local", "--json", "-", "--csv", "-"], "--json - and --csv - exclude each other"),
                (["--server", ":0", "--repeat", "3"], "--repeat and --server exclude each other"),
                (["bw", "--local", "--compare", "tcp,quic"], "quic")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("bench", *words), 2, reason)

    def test_two_processes_of_our_own(self):
        server = self.target("--once")
        report = self.bench("bw", server.listen, "--size", "64K", "--duration", "0.1", "--transport", "tcp")
        self.assertFalse(report["local"])
        self.assertEqual(server.wait(), 0, server.output)

    def test_a_target_that_nobody_measures_sleeps(self):
        server = self.target()

        def sleeps():
            """Whether there is a while in which it did nothing. Who spins does something in each, however busy the host."""
            end = time.monotonic() + PATIENCE / 4
            while time.monotonic() < end:
                before = cpu_ticks(server.process.pid)
                time.sleep(0.3)
                if cpu_ticks(server.process.pid) - before <= 1:
                    return True
            return False

        for path, kind, op in itertools.product(("tcp", "shm", "verbs"), ("bw", "lat"), ("write", "read", "send")):
            with self.subTest(path=path, kind=kind, op=op):
                self.bench(kind, server.listen, "--op", op, "--size", "8", "--iterations", "300", *PATHS[path])
                self.assertTrue(sleeps(), server.output)

    def test_once_is_over_when_the_first_initiator_failed(self):
        server = self.target("--once", "--transport", "tcp")
        probe = socket.create_connection(server.listen.rsplit(":", 1), timeout=PATIENCE)
        probe.close()  # as "is it there yet?" asks; no initiator
        code, output = self.run_to_end("bench", "lat", server.listen, "--transport", "verbs:soft0", "--iterations", "9")
        self.assertEqual(code, 1, output)
        self.assertEqual(server.wait(), 1, server.output)
        self.assertRegex(server.output, "error: .*the initiator came, but no session")

    def test_once_is_not_over_because_another_failed(self):
        server = self.target("--once", "--transport", "tcp")
        client = self.start("bench", "bw", server.listen, "--transport", "tcp", "--duration", "600")
        client.wait_for("size +count")
        code, output = self.run_to_end("bench", "lat", server.listen, "--transport", "verbs:soft0", "--iterations", "9")
        self.assertEqual(code, 1, output)
        time.sleep(2)  # it looks once a second
        os.kill(client.process.pid, signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.output)
        self.assertEqual(server.wait(), 0, server.output)

    def test_flags_that_have_no_effect_are_refused(self):
        for words, reason in (
                ("bw --server :0", "--server and bw exclude each other"),
                ("--server :0 --size 1M", "--size and --server exclude each other"),
                ("--server :0 --local", "--server and --local exclude each other"),
                ("lat --local --depth 4", "--depth is for bw"),
                ("lat --local --footprint 1M", "--footprint is for bw"),
                ("lat --local --batch 4", "--batch is for bw"),
                ("bw --local --batch 17", "--batch 17 is more than the 16 operations in flight; raise --depth to 17"),
                ("bw --local --batch 5 --size 4K,1M", "--batch 5 of 1M takes 5M at each end, and --footprint is 1M"),
                ("bw --local --batch 4 --op send", "--batch is for writes and reads"),
                ("bw --local --batch 4 --rate 100", "--batch and --rate exclude each other"),
                ("bw --local --post_list 4", "there is no flag --post_list; here that is --batch\n"),
                ("--server :0 --batch 2", "--batch and --server exclude each other"),
                ("bw --local --arrival memory", "--arrival is for lat --op write"),
                ("lat --local --op send --arrival memory", "--arrival is for lat --op write"),
                ("bw --local --once", "--once is for --server"),
                ("bw --local --duration 1 --iterations 5", "--duration and --iterations exclude each other"),
                ("bw --local --transport tcp --mtu 1024", "--mtu is a setting of verbs, and --transport is tcp"),
                ("--server :0 --transport tcp --gid-index 1", "--gid-index is a setting of verbs"),
                ("bw --local --sise 1M", "there is no flag --sise; did you mean --size.\n"),
                ("bw --local -q 4", "there is no flag -q; here that is --sessions\n"),
                ("bw gpu7:7472 -p 5", "there is no flag -p; here that is the PORT of HOST:PORT, of --server :PORT\n"),
                ("bw --local -s64", "there is no flag -s64; here that is --size, --server :PORT for iperf3's\n"),
                ("bw --local -B 1.2.3.4", "there is no flag -B; here that is the HOST of --server HOST:PORT\n"),
                ("bw --local -t 4", "there is no flag -t; here that is --depth for perftest's, --duration for iperf3's\n"),
                ("bw --local --bidir", "there is no flag --bidir; here that is --bidirectional\n"),
                ("bw --local --columns iperf3", "--columns: 'iperf3' is not legal"),
                ("bw a:1 b:2 a:1", "a target is given twice"),
                ("bw --local --size 8..64,32", "--size: size 32 is given twice"),
                ("bw a:1 nowhere", "HOST:PORT: 'nowhere'"),
                ("lat a:1 b:2", "lat is with one target"),
                ("lat --local --sessions 2", "--sessions is for bw"),
                ("lat --local --bidirectional", "--bidirectional is for bw"),
                ("bw --local --op read --bidirectional", "--bidirectional writes and reads at once, so it excludes --op read"),
                ("bw --local --sessions 65", "--sessions: '65' is not legal"),
                ("bw --local --sessions 16 --initiators 4 --bidirectional", "--sessions, for each of .* come to 128 sessions; at most 64"),
                ("bw --local --cores 4095", "--cores '4095': core 4095 is not there for this process, which may run on "),
                ("bw --local --cores 0:0-x", "--cores '0:0-x': "),
                ("--server :0 --cores 0:0", "--cores '0:0': two lists are for --local"),
                ("--server :0 --sessions 2", "--sessions and --server exclude each other")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("bench", *words.split()), 2, "bench: " + reason)
        # The environment is for many commands; what one of them has no use for does no harm there.
        self.run_to_end("bench", "lat", "--local", "--transport", "tcp", "--iterations", "5",
                        env={"FAIRLEAD_MTU": "1024", "FAIRLEAD_DEPTH": "4"})

    def test_ctrl_c_shows_what_was_measured(self):
        report = self.path("report.json")
        for seconds in (1, 2, 4, 8, 16, 32):  # until the clock of the measurement runs
            client = self.start("bench", "bw", "--local", "--transport", "tcp", "--size", "64K,1M", "--duration", "1000",
                                "--json", report)
            client.wait_for("size +count")
            time.sleep(seconds)
            children = pathlib.Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children").read_text()
            for pid in (*children.split(), client.process.pid):  # a terminal tells the whole group
                os.kill(int(pid), signal.SIGINT)
            self.assertEqual(client.wait(), 130, client.output)
            self.assertRegex(client.output, "(?m)^interrupted: ")
            document = json.loads(pathlib.Path(report).read_text())
            self.assertEqual(violations(document, "bench"), [])
            self.assertEqual((document["interrupted"], document["error"]), (True, None))
            results = document["results"]
            if results:
                break
        self.assertEqual(len(results), 1)
        self.assertRegex(client.output, r"(?m)^ +64K +\d+ .*interrupted, not verified(?:  retransmissions: .*)?$")
        self.assertEqual((results[0]["interrupted"], results[0]["verified"]), (True, False))
        self.assertGreater(results[0]["bytes_per_second"], 0)

    def test_ctrl_c_between_repeats(self):
        report = self.path("report.json")
        client = self.start("bench", "bw", "--local", "--transport", "tcp", "--size", "4K,8K", "--duration", "0.1", "--repeat", "1000",
                            "--interval", "0.05", "--json", report)
        client.wait_for(" to .* messages/s")
        time.sleep(1)
        os.kill(client.process.pid, signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "bench"), [])
        self.assertTrue(document["interrupted"])
        self.assertEqual([(result["size_bytes"], result["interrupted"]) for result in document["results"]], [(4096, True)])

    def test_what_was_complete_outlives_a_failure(self):
        report, table, figures = self.path("report.json"), self.path("report.csv"), self.path("report.prom")
        server = self.target("--transport", "tcp")
        client = self.start("bench", "bw", server.listen, "--transport", "tcp", "--size", "4K,64K", "--duration", "5", "--json", report,
                            "--csv", table, "--prometheus-file", figures)
        client.wait_for("^ +4K +[0-9]+ ")
        server.kill()
        self.assertEqual(client.wait(), 1, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "bench"), [])
        self.assertTrue(document["interrupted"])
        self.assertRegex(document["error"], "size 64K: ")
        self.assertEqual(document["results"][0]["size_bytes"], 4096)
        self.check(document["results"][0])
        self.assertIn(",4096,", pathlib.Path(table).read_text())
        self.assertIn('size="4096"', pathlib.Path(figures).read_text())

    def test_reports_are_written_each_by_itself(self):
        folder, table = self.folder / "gone", self.path("report.csv")
        folder.mkdir()
        client = self.start("bench", "bw", "--local", "--transport", "tcp", "--size", "4K", "--duration", "2", "--json",
                            folder / "report.json", "--csv", table)
        client.wait_for("size +count")
        folder.rmdir()
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "error: .*gone/report.json")
        self.assertIn(",4096,", pathlib.Path(table).read_text())

    def interrupted_ranks(self, *words):
        """The report of ranks of this host that are interrupted once they have something to report."""
        report = self.path(f"{words[0]}.json")
        for seconds in (1, 2, 4, 8, 16, 32):
            client = self.start("bench", *words, "--local", "2", "--transport", "tcp", "--json", report)
            time.sleep(seconds)
            if client.process.poll() is None:
                os.kill(client.process.pid, signal.SIGINT)
            code = client.wait()
            if os.path.exists(report):
                break
        self.assertEqual(code, 130, client.output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, words[0]), [])
        self.assertTrue(document["interrupted"])
        self.assertTrue(document["verified"])
        return document

    def test_ctrl_c_of_ranks(self):
        sums = self.interrupted_ranks("allreduce", "--sizes", "4K,8K", "--iterations", "1000000")
        self.assertEqual([result["bytes"] for result in sums["results"]], [4096])
        self.assertLess(len(sums["results"][0]["seconds"]), 1_000_000)
        steps = self.interrupted_ranks("training", "--compute-ms", "1", "--steps", "1000000", "--warm-up", "0")["steps"]
        self.assertLess(len(steps), 1_000_000)

    def test_sums_that_were_made_before_a_rank_died(self):
        places = [f"127.0.0.1:{port}" for port in free_ports(2)]
        report = self.path("ranks.json")
        words = ("bench", "allreduce", "--ranks", ",".join(places), "--sizes", "8,256M", "--iterations", "300", *PATHS["tcp"])
        ranks = [self.start(*words, "--rank", rank, *(["--json", report] if rank == 0 else [])) for rank in range(2)]
        ranks[0].wait_for("^ +8 B ")
        ranks[1].kill()
        self.assertEqual(ranks[0].wait(), 1, ranks[0].output)
        document = json.loads(pathlib.Path(report).read_text())
        self.assertEqual(violations(document, "allreduce"), [])
        self.assertEqual((document["interrupted"], [result["bytes"] for result in document["results"]]), (True, [8]))
        self.assertIn("rank 1", document["error"])

    def test_steps_and_pairs_that_were_measured_before_a_rank_died(self):
        runs = {"training": (["--compute-ms", "1", "--warm-up", "0", "--steps", "1000000"], "^2 ranks|tcp", 2),
                "matrix": (["--size", "64K", "--duration", "0.3"], "^3 ranks have met", 3)}
        for name, (flags, begun, size) in runs.items():
            for seconds in (1, 2, 4, 8, 16):  # until something is measured by then
                places = [f"127.0.0.1:{port}" for port in free_ports(size)]
                report = self.path(f"{name}{seconds}.json")
                words = ("bench", name, "--ranks", ",".join(places), *flags, "--peer-timeout", "1000", *PATHS["tcp"])
                ranks = [self.start(*words, "--rank", rank, *(["--json", report] if rank == 0 else [])) for rank in range(size)]
                time.sleep(seconds)
                ranks[1].kill()
                codes = [rank.wait() for rank in ranks]
                if codes[0] == 1 and os.path.exists(report) and os.path.getsize(report) > 0:
                    break
            self.assertEqual(codes[0], 1, ranks[0].output)
            document = json.loads(pathlib.Path(report).read_text())
            self.assertEqual(violations(document, name), [])
            self.assertTrue(document["interrupted"])
            self.assertTrue(document["steps" if name == "training" else "pairs"])
            self.assertIn("rank 1", document["error"])
            self.assertRegex(ranks[0].output, "(?m)^interrupted: (.*\n)+.*error: .*rank 1")

    def test_a_ping_pong_over_udp_whose_other_end_is_gone(self):
        for number, reason in ((signal.SIGKILL, "has ended|Connection refused"), (signal.SIGSTOP, "a datagram was lost")):
            with self.subTest(reason):
                program = subprocess.Popen([pathlib.Path(PROGRAM).parent / "fairlead-udp-pingpong", "64", "100000000"],
                                           stderr=subprocess.PIPE, text=True)
                self.addCleanup(program.kill)
                children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
                end = time.monotonic() + PATIENCE
                while not children.read_text() and time.monotonic() < end:
                    time.sleep(0.05)
                os.kill(int(children.read_text()), number)
                _, errors = program.communicate(timeout=PATIENCE)
                self.assertEqual(program.returncode, 1)
                self.assertRegex(errors, reason)

    def test_a_push_to_it_says_what_is_needed(self):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1))
        self.assert_fails(self.run_to_end("push", file, self.target().listen), 1, "need a `fairlead serve`")

    def test_log_lines_have_a_date(self):
        code, output = self.run_to_end("bench", "lat", "127.0.0.1:1", env={"FAIRLEAD_LOG": "info"})
        self.assertEqual(code, 1)
        self.assertRegex(output, r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (info|warning)")

    def test_loss_is_verified_too(self):
        report = self.bench("bw", "--local", "--transport", "verbs:soft0", "--packet-io", "udp,drop=0.01,reorder=0.01",
                            "--size", "64K", "--duration", "0.3")
        self.assertTrue(report["results"][0]["verified"])

    def test_a_target_that_dies_fails_the_run(self):
        server = self.target()
        client = self.start("bench", "bw", server.listen, "--duration", "60", "--size", "64K")
        client.wait_for("size +count")
        server.kill()
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "bench: error")


if __name__ == "__main__":
    main()
