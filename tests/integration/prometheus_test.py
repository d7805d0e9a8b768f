"""Prometheus as an operator would run it, with the files of deploy/prometheus: rules and alerts that are right, a scrape of
eight processes under load of which none is lost, and every series that the dashboard and the rules name."""

import json
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import readers
from harness import PATIENCE, PROGRAM, Case, random_model, write_safetensors

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus"
LOAD = pathlib.Path(PROGRAM).parent / "fairlead-tenant-load"
WORDS = re.compile(r"\b(?:fairlead_\w+|fairlead:\w+(?::\w+)?|process_\w+|up)\b(?=[{\[) ]|$)")


def promtool(*words):
    done = subprocess.run(["promtool", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=RULES, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout


def series_of(expressions):
    """The names of all series in them; of a histogram its buckets'."""
    found = set()
    for expression in expressions:
        found.update(WORDS.findall(re.sub(r"\b(?:by|without) *\([^)]*\)|\"[^\"]*\"|\{[^}]*\}", lambda m: "{}" if m[0][0] == "{" else "", expression)))
    return found


def dashboard():
    board = json.loads((DEPLOY / "grafana/fairlead.json").read_text(encoding="utf-8"))
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def expressions(file):
    return re.findall(r"(?m)^ +expr: (.+)$", (RULES / file).read_text(encoding="utf-8"))


class Files(Case):
    def test_promtool_finds_nothing_wrong(self):
        for command in (("check", "rules", "recording.yml", "alerts.yml"), ("check", "config", "prometheus.yml"),
                        ("test", "rules", "alerts_test.yml")):
            with self.subTest(command):
                code, output = promtool(*command)
                self.assertEqual(code, 0, output)

    def test_every_alert_has_a_test_that_fires_it(self):
        alerts = re.findall(r"(?m)^ +- alert: (\w+)$", (RULES / "alerts.yml").read_text(encoding="utf-8"))
        tests = (RULES / "alerts_test.yml").read_text(encoding="utf-8")
        fired = re.findall(r"alertname: (\w+)\n +eval_time: \S+\n +exp_alerts:\n +- exp_labels", tests)
        self.assertGreater(len(alerts), 10)
        self.assertEqual(sorted(alerts), sorted(fired))
        # A test that cannot fail is none: without its rule, or with its threshold gone, promtool says so.
        broken = self.folder / "rules"
        shutil.copytree(RULES, broken)
        text = (broken / "alerts.yml").read_text(encoding="utf-8")
        (broken / "alerts.yml").write_text(text.replace("> 0.9", "> 1.9"), encoding="utf-8")
        self.assertNotEqual(promtool("test", "rules", broken / "alerts_test.yml")[0], 0)


class Scraped(Case):
    def prometheus(self, found):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = "127.0.0.1:{}".format(free.getsockname()[1])
        folder = self.folder / "prometheus"
        shutil.copytree(RULES, folder)
        config = (folder / "prometheus.yml").read_text(encoding="utf-8")
        config = config.replace("15s", "1s").replace("/run/fairlead/metrics", str(found))
        (folder / "prometheus.yml").write_text(config, encoding="utf-8")
        log = open(self.folder / "prometheus.log", "w", encoding="utf-8")
        self.addCleanup(log.close)
        process = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                    f"--web.listen-address={where}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.address = where

    def ask(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def until(self, condition, what):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if condition():
                    return
            except OSError:  # it is not there yet
                pass
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.2)

    def keys(self, *names):
        file = self.folder / "keys"
        file.touch(mode=0o600)
        for name in names:
            line = subprocess.run([PROGRAM, "key", name], capture_output=True, text=True, check=True).stdout
            file.write_text(file.read_text(encoding="ascii") + line, encoding="ascii")
        return str(file)

    def free_range(self, count):
        """A first port after which so many are free; nobody else takes them soon."""
        for first in range(20_000, 32_000, 97):
            held = []
            try:
                for port in range(first, first + count):
                    held.append(socket.socket())
                    held[-1].bind(("127.0.0.1", port))
                return first
            except OSError:
                continue
            finally:
                for each in held:
                    each.close()
        self.fail("no range of free ports")

    def test_eight_processes_under_load(self):
        found, keys = self.folder / "found", self.keys("trainer")
        first = self.free_range(20)
        flags = ["--metrics", f"127.0.0.1:{first}-{first + 19}", "--metrics-discovery", str(found)]
        busy = self.serve(*flags, "--transport", "tcp,verbs:soft0", "--store", self.path("store"), "--max-bytes", "30M")
        for _ in range(6):
            self.serve(*flags, "--transport", "tcp")
        device = self.serve("--gpu", "host", "--keys", keys, "--transport", "tcp", "--threads", *flags)
        self.prometheus(found)
        model = self.path("model.safetensors")
        write_safetensors(model, random_model(8))
        name = iter(range(1000))

        def load():
            for transport in ("tcp", "verbs:soft0"):
                code, output, _ = self.push(busy, model, "--transport", transport, "--name", f"m{next(name)}")
                self.assertEqual(code, 0, output)
            code, output = self.run_to_end("pull", busy.listen, f"m{next(name) - 1}", self.path("copy"))
            self.assertEqual(code, 0, output)
            done = subprocess.run([LOAD, device.listen, keys, "trainer", "1", "100", "8"], capture_output=True, text=True,
                                  check=False, timeout=PATIENCE)
            self.assertEqual(done.returncode, 0, done.stderr)

        self.until(lambda: len(self.ask("query", query="up == 1")["result"]) == 8, "all eight are up")
        load()
        wanted = series_of(dashboard() + expressions("recording.yml") + expressions("alerts.yml"))
        self.assertGreater(len(wanted), 40)
        # Of a failure there is a series from the beginning; only what is named by a peer comes with it.
        self.until(lambda: not self.missing(wanted, load), "every series is there")
        self.assertEqual(self.missing(wanted | {"fairlead_no_such_thing"}), {"fairlead_no_such_thing"})
        self.assertEqual(len(self.ask("query", query="up == 1")["result"]), 8)
        names = self.ask("label/__name__/values")
        self.assertEqual([name for name in names if name.startswith("exposer_")], [])
        text = urllib.request.urlopen(busy.metrics_url, timeout=PATIENCE).read().decode()
        self.assertNotRegex(text, r"(?mi)^[^#].* [+-]?nan$")
        took = [float(each["value"][1]) for each in self.ask("query", query="scrape_duration_seconds")["result"]]
        print(f"scrapes took {1000 * statistics.median(took):.1f} ms at the median, {1000 * max(took):.1f} ms at most")
        self.assertEqual(self.ask("alerts")["alerts"], [])

    def missing(self, wanted, load=None):
        if load is not None:
            load()
        there = set(self.ask("label/__name__/values"))
        return {name for name in wanted if name not in there}


if __name__ == "__main__":
    if shutil.which("promtool") is None:
        readers.main("promtool")
    readers.main("prometheus")
