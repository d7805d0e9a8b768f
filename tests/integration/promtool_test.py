"""What a server exports, read by promtool of Prometheus: no error and no remark, while it is idle and after it has served
over both transports; and the figures that dashboards rest on are there."""

import subprocess
import urllib.request

import readers
from harness import PATIENCE, Case, random_model, write_safetensors

FIGURES = ("fairlead_pool_bytes", "fairlead_pool_used_bytes")


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
        for name in FIGURES:
            self.assertIn(f"# TYPE {name} gauge", idle)
        model = self.path("model.safetensors")
        write_safetensors(model, random_model(4))
        for transport in ("tcp", "verbs:soft0"):
            code, output, _ = self.push(server, model, "--transport", transport)
            self.assertEqual(code, 0, output)
        busy = self.scrape(server)
        for name in FIGURES:
            self.assertRegex(busy, rf"(?m)^{name} \d")
        self.assertGreaterEqual(self.metric(server, "fairlead_pool_bytes"), self.metric(server, "fairlead_pool_used_bytes"))


if __name__ == "__main__":
    readers.main("promtool")
