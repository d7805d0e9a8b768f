#!/usr/bin/env python3
"""`fairlead serve --gpu` and `fairlead status`, as operators use them; clients are fairlead-tenant-load."""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest
import urllib.request

from harness import PATIENCE, PROGRAM, Case, Process

LOAD = pathlib.Path(PROGRAM).parent / "fairlead-tenant-load"


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False, timeout=PATIENCE)


class GpuServer(Case):
    def path(self, name):
        return pathlib.Path(super().path(name))

    def keys(self, *names):
        path = self.path("keys")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            for name in names:
                file.write(run("key", name).stdout)
        return path

    def serve(self, *words, gpu="host", env=None):
        ready = self.path("ready.json")
        server = Process("serve", "--gpu", gpu, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--ready-file", ready,
                         "--transport", "tcp", *words, env=env)
        self.addCleanup(server.end)
        server.wait_for("metrics on")
        while not (ready.exists() and ready.read_text(encoding="utf-8")):
            time.sleep(0.01)
        where = json.loads(ready.read_text(encoding="utf-8"))
        return server, where["listen"], where["metrics"]

    def load(self, address, keys, name, launches_for=1, depth=8):
        return subprocess.run([LOAD, address, keys, name, str(launches_for), "1000", str(depth)], capture_output=True, text=True,
                              check=False, timeout=PATIENCE)

    def status(self, metrics):
        done = run("status", metrics, "--json", "-", "--interval", "0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {tenant["name"]: tenant for tenant in json.loads(done.stdout)["tenants"]}

    def commands(self, metrics):
        return sum(tenant["commands"] for tenant in self.status(metrics).values())

    def test_several_devices(self):
        keys, tenants = self.keys("trainer", "store"), self.path("tenants")
        tenants.write_text("trainer devices=1 share=60%\nstore devices=0 share=60%\n", encoding="utf-8")
        server, address, metrics = self.serve("--keys", keys, "--tenants", tenants, "--sharing", "fixed", "--drain", "1", gpu="host,host")
        done = self.load(address, keys, "trainer")
        self.assertEqual(done.returncode, 0, done.stderr)
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=PATIENCE) as page:
            text = page.read().decode()
        self.assertIn('fairlead_gpu_device_info{device="1",name="host"} 1', text)
        self.assertIn('fairlead_tenant_commands_total{tenant="trainer",device="0"} 0\n', text)
        self.assertRegex(text, r'fairlead_tenant_commands_total\{tenant="trainer",device="1"\} [1-9]')
        document = json.loads(run("status", metrics, "--json", "-", "--interval", "0.1").stdout)
        self.assertEqual([each["name"] for each in document["devices"]], ["0 host", "1 host"])
        self.assertEqual(document["devices"][0]["commands"], 0)
        self.assertGreater(document["devices"][1]["commands"], 0)
        self.assertRegex(run("status", metrics, "--interval", "0.1").stdout, r"(?m)^1 host +")
        with urllib.request.urlopen(f"http://{metrics}/status", timeout=PATIENCE) as page:
            self.assertEqual(json.load(page)["devices"], ["host", "host"])

        tenants.write_text("trainer devices=2 share=1%\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("tenant 'trainer' may use device 2, of which there is none; legal: 0 to 1")
        tenants.write_text("trainer devices=0,1 share=60%\nstore share=60%\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the shares of all tenants at device 0 are 1.2, more than 1")

    def test_devices_that_are_none(self):
        for gpu, words in (("host,", "'' is no device"), ("host,cuda", "'cuda' is no device"), ("cuda:1,cuda:1", "'cuda:1' is there twice"),
                           (",".join(["host"] * 17), "are 17 devices, and a server has at most 16")):
            done = run("serve", "--gpu", gpu)
            self.assertEqual(done.returncode, 2, gpu)
            self.assertIn(words, done.stderr)

    def test_tenants_from_a_file(self):
        keys, tenants = self.keys("trainer", "store", "stranger"), self.path("tenants")
        tenants.write_text("trainer memory=1M share=50%\nstore memory=1K share=50%\n", encoding="utf-8")
        server, address, metrics = self.serve("--keys", keys, "--tenants", tenants, "--sharing", "fixed", "--drain", "1")
        done = self.load(address, keys, "trainer")
        self.assertEqual(done.returncode, 0, done.stderr)
        launches = json.loads(done.stdout)["launches"]
        self.assertGreater(launches, 0)
        beyond = self.load(address, keys, "store")
        self.assertEqual(beyond.returncode, 1)
        self.assertIn("4000 bytes beside 0 of 1024 that the tenant may have", beyond.stderr)
        refused = self.load(address, keys, "stranger")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("'stranger' is none of the service's tenants", refused.stderr)

        seen = self.status(metrics)
        self.assertEqual(sorted(seen), ["store", "trainer"])
        self.assertGreaterEqual(seen["trainer"]["commands"], launches)
        self.assertEqual(seen["store"]["rejections"], 1)
        self.assertEqual(seen["store"]["failures"], {"command": 1, "stream": 0, "context": 0})
        table = run("status", metrics, "--interval", "0.1")
        self.assertEqual(table.returncode, 0)
        self.assertRegex(table.stdout, r"(?m)^trainer +\d+ ")

        # Other terms, by SIGHUP; tenants that do not go together change no tenant.
        tenants.write_text("trainer share=50%\nstore share=60%\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the shares of all tenants are 1.1, more than 1; the tenants that were read before still hold")
        self.assertEqual(self.load(address, keys, "store").returncode, 1)
        tenants.write_text("trainer share=40%\nstore share=60%\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the tenants and the keys were read again")
        self.assertEqual(self.load(address, keys, "store").returncode, 0)
        with urllib.request.urlopen(f"http://{metrics}/metrics") as page:
            text = page.read().decode()
        for result in "done", "failed":
            self.assertIn(f'fairlead_serve_reloads_total{{result="{result}"}} 1\n', text)
        self.assertEqual(server.end(), 0)

    # A session's process is given its environment, and is not to ask for what goes with it in a server.
    def test_settings_are_the_servers_alone(self):
        keys, tenants, settings = self.keys("trainer"), self.path("tenants"), self.path("settings")
        tenants.write_text("trainer\n", encoding="utf-8")
        settings.write_text("memory = 64K\n", encoding="utf-8")
        discovery = self.path("discovery")
        discovery.mkdir()
        env = {"FAIRLEAD_TENANTS": str(tenants), "FAIRLEAD_CONFIG": str(settings), "FAIRLEAD_METRICS_DISCOVERY": str(discovery),
               "FAIRLEAD_DRAIN_LEAST": "30", "FAIRLEAD_TRANSPORT": "nothing"}
        server, address, metrics = self.serve("--keys", keys, "--drain-least", "0", env=env)
        settings.write_text("memory = lots\n", encoding="utf-8")
        done = self.load(address, keys, "trainer")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.status(metrics)), ["trainer"])
        self.assertEqual(server.end(), 0)

    def test_without_keys_everybody_may_come(self):
        server, address, metrics = self.serve()
        done = self.load(address, "", "")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(self.status(metrics)), ["(anonymous)"])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("SIGHUP: nothing is to be read again")
        self.assertEqual(self.load(address, "", "").returncode, 0)
        self.assertEqual(server.end(), 0)

    @staticmethod
    def children(server):
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            except OSError:  # it has ended
                continue
            if int(parent) == server.process.pid:
                found.append(int(stat.parent.name))
        return found

    def test_drains(self):
        server, address, _ = self.serve("--drain", "600")
        with subprocess.Popen([LOAD, address, "", "", "600", "1000", "4"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True) as client:
            self.addCleanup(client.kill)
            seen = False
            while not seen:  # it has a session
                metrics = json.loads(self.path("ready.json").read_text(encoding="utf-8"))["metrics"]
                seen = self.commands(metrics) != 0
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("ending when what is under way is finished")
            late = self.load(address, "", "")
            self.assertEqual(late.returncode, 1)
            self.assertIn("takes no new sessions", late.stderr)
            # As systemd and a terminal do it: to every process of the server's.
            sessions = self.children(server)
            self.assertEqual(len(sessions), 1)
            for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
                os.kill(sessions[0], number)
            ran = self.commands(metrics)
            while self.commands(metrics) == ran:
                self.assertIsNone(client.poll(), "who is there goes on")
                time.sleep(0.01)
            score = [int(pathlib.Path(f"/proc/{each}/oom_score_adj").read_text(encoding="utf-8"))
                     for each in (sessions[0], server.process.pid)]
            self.assertEqual(score[0], min(score[1] + 500, 1000), "where memory runs out, a session goes before the server")
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("what was under way is dropped")
            self.assertEqual(server.wait(), 0)
            self.assertEqual(client.wait(PATIENCE), 1)
        self.assertFalse(self.path("ready.json").exists())

    def test_what_is_wrong_is_named(self):
        keys, tenants = self.keys("trainer"), self.path("tenants")
        tenants.write_text("trainer memory=lots\n", encoding="utf-8")
        for words, code, text in [
                (("--tenants", tenants), 2, "--tenants names principals, whom --keys FILE knows"),
                (("--tenants", tenants, "--keys", keys), 2, "tenants, line 1: memory:"),
                (("--tenants", self.path("none"), "--keys", keys), 1, "cannot read"),
                (("--sharing", "fixed"), 2, "fixed shares take tenants"),
                (("--sharing", "some"), 2, "best-effort, equal, fixed, free"),
        ]:
            done = run("serve", "--gpu", "host", "--listen", "127.0.0.1:0", *words)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(text, done.stderr)
        done = run("serve", "--gpu", "cuda:1000", "--listen", "127.0.0.1:0")  # with a driver or without
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "libcuda.so.1|device")
        done = run("serve", "--gpu", "abacus")
        self.assertEqual(done.returncode, 2)
        self.assertIn("abacus", done.stderr)
        done = run("status", "127.0.0.1:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot reach 127.0.0.1:1", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
