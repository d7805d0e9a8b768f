"""What a server exports, read by promtool of Prometheus: no error and no remark, while it is idle and after it has served
over both transports; and the figures that dashboards rest on are there. The same of results that are written into files."""

import json
import pathlib
import re
import subprocess
import urllib.request

import readers
from harness import PATIENCE, Case, random_model, write_safetensors

# name: its kind, and whether it has labels
FIGURES = {
    "fairlead_pool_bytes": ("gauge", False), "fairlead_pool_used_bytes": ("gauge", False),
    "fairlead_pool_blocks": ("gauge", False), "fairlead_pool_cached_bytes": ("gauge", False),
    "fairlead_pool_arenas": ("gauge", True), "fairlead_pool_arena_bytes": ("gauge", True),
    "fairlead_pool_arenas_given_back_total": ("counter", False), "fairlead_pool_given_back_bytes_total": ("counter", False),
    "fairlead_pool_node": ("gauge", False), "fairlead_registered_bytes": ("gauge", False),
    "fairlead_cache_hits_total": ("counter", False), "fairlead_cache_misses_total": ("counter", False),
    "fairlead_cache_evicted_total": ("counter", False), "fairlead_cache_invalidated_total": ("counter", False),
    "fairlead_cache_registrations": ("gauge", False), "fairlead_cache_bytes": ("gauge", False),
    "fairlead_lane_cpu": ("gauge", True), "fairlead_transport_planned_bytes_per_second": ("gauge", True),
}


def check(text):
    """(exit code, output): 0 and nothing if all is well, 3 with remarks, 1 with errors"""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=PATIENCE, check=False)
    return done.returncode, done.stdout


class Promtool(Case):
    def scrape(self, server):
        text = urllib.request.urlopen(server.metrics_url, timeout=PATIENCE).read().decode()
        self.assertEqual(check(text), (0, ""), text)
        return text

    def test_finds_what_is_wrong(self):
        self.assertEqual(check("fairlead_x{ 1\n")[0], 1)
        status, remarks = check("# HELP fairlead_x X\n# TYPE fairlead_x counter\nfairlead_x 1\n")
        self.assertEqual((status, "_total" in remarks), (3, True), remarks)

    def test_a_server(self):
        server = self.serve("--transport", "tcp,verbs:soft0", metrics=True)
        idle = self.scrape(server)
        for name, (kind, labelled) in FIGURES.items():
            if not labelled or not name.startswith("fairlead_pool"):  # it has no arena before memory is needed
                self.assertIn(f"# TYPE {name} {kind}\n", idle)
        model = self.path("model.safetensors")
        write_safetensors(model, random_model(4))
        for transport in ("tcp", "verbs:soft0"):
            code, output, _ = self.push(server, model, "--transport", transport)
            self.assertEqual(code, 0, output)
        busy = self.scrape(server)
        for name, (kind, labelled) in FIGURES.items():
            self.assertIn(f"# TYPE {name} {kind}\n", busy)
            self.assertRegex(busy, rf"(?m)^{name}{'{.*}' if labelled else ''} -?\d")
        self.assertGreaterEqual(self.metric(server, "fairlead_pool_bytes"), self.metric(server, "fairlead_pool_used_bytes"))

    def results(self, *words):
        """The samples {name with labels: value} of --prometheus-file, and the report beside them."""
        file, report = pathlib.Path(self.path("results.prom")), self.path("report.json")
        code, output = self.run_to_end(*words, "--prometheus-file", str(file), "--json", report, timeout=4 * PATIENCE)
        self.assertEqual(code, 0, output)
        text = file.read_text(encoding="utf-8")
        self.assertEqual(check(text), (0, ""), text)
        self.assertEqual([each.name for each in file.parent.glob("results*")], [file.name])
        samples = dict(re.findall(r"(?m)^([^#\s].*) (\S+)$", text))
        return {name: float(value) for name, value in samples.items()}, json.loads(pathlib.Path(report).read_text())

    def test_results_of_bench(self):
        for kind, sizes, latency_kind in (("bw", "4K,64K", "completion_under_load"), ("lat", "8,64", "half_round_trip")):
            with self.subTest(kind):
                samples, report = self.results("bench", kind, "--local", "--compare", "tcp,verbs:soft0", "--size", sizes, "--repeat", "1",
                                               "--iterations", "100")
                for side in report["transports"]:
                    each = side["results"][0]
                    labels = f'transport="{side["transport"]}",kind="{kind}",op="write",size="{each["size_bytes"]}"'
                    self.assertEqual(samples[f"fairlead_bench_bytes_per_second{{{labels}}}"], each["bytes_per_second"])
                    timed = f'{labels},latency_kind="{latency_kind}"'
                    for percentile, name in ((0, "min"), (50, "p50"), (99.9, "p999"), (100, "max")):
                        self.assertAlmostEqual(samples[f'fairlead_bench_latency_seconds{{{timed},percentile="{percentile}"}}'],
                                               each["latency_ns"][name] * 1e-9, 12)
                    for end in ("initiator", "target"):
                        self.assertAlmostEqual(samples[f'fairlead_bench_cpu_seconds_per_gigabyte{{{labels},end="{end}"}}'],
                                               each["cpu_seconds_per_gb"][end], 6)
                    self.assertEqual(samples[f"fairlead_bench_verified{{{labels}}}"], 1)

    def test_results_of_gain(self):
        quick = ("--local", "--quads", "2", "--block", "0.02", "--sizes", "4K")
        for words in ((*quick, "--candidate", "verbs:soft0"), (*quick, "--candidate", "tcp"),
                      ("--training", "resnet50", "--scale", "0.001", "--local", "2", "--candidate", "tcp", "--quads", "1")):
            with self.subTest(words=words):
                samples, report = self.results("gain", *words)
                sides = f'baseline="tcp",candidate="{report["candidate"]["transport"]}"'
                verdicts = {re.search('verdict="(.*?)"', name)[1]: value for name, value in samples.items()
                            if name.startswith(f"fairlead_gain_verdict{{{sides},")}
                self.assertEqual([word for word, value in verdicts.items() if value == 1], [report["verdict"]])
                self.assertEqual((len(verdicts), sum(verdicts.values())), (5, 1))
                self.assertEqual(samples[f"fairlead_gain_equal_terms{{{sides}}}"], report["equal_terms"])
                for each in [*report["results"], {**report["control"], "role": "control"}]:
                    labels = f'{sides},role="{each["role"]}",metric="{each["metric"]}",size="{each["size_bytes"]}"'
                    for name in ("ratio", "ratio_low", "ratio_high"):
                        self.assertEqual(samples[f"fairlead_gain_{name}{{{labels}}}"], each[name])
                    self.assertEqual(samples[f"fairlead_gain_ratio_confidence{{{labels}}}"], each["confidence"])

    def test_no_file_to_write(self):
        for command in (("bench", "bw", "--local", "--transport", "tcp"), ("gain", "--local"), ("gain", "--training", "vgg16")):
            self.assert_fails(self.run_to_end(*command, "--prometheus-file", "-"), 2, "'-' is not legal here")
            self.assert_fails(self.run_to_end(*command, "--prometheus-file", self.path("none/results.prom")), 1, "cannot create")


if __name__ == "__main__":
    readers.main("promtool")
