"""What a server exports, read by promtool of Prometheus: no error and no remark, while it is idle and after it has served
over both transports; and the figures that dashboards rest on are there."""

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


if __name__ == "__main__":
    readers.main("promtool")
