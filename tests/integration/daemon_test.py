"""`fairlead serve` as operators keep it: settings from a file, a service manager that is told, draining, models on disk,
quotas, logs, and ports for metrics that several processes of a host share."""

import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from harness import PATIENCE, PROGRAM, Case, main, random_model, read_safetensors, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parents[2]


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def page(server, path):
    """(status, body)"""
    url = server.metrics_url.replace("/metrics", path)
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Daemon(Case):
    def model(self, name="m", megabytes=2, seed=1):
        file = self.path(f"{name}.safetensors")
        write_safetensors(file, random_model(megabytes, seed))
        return file

    def keys(self, *principals):
        file = self.path("keys")
        with open(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as out:
            for principal in principals:
                out.write(subprocess.run([PROGRAM, "key", principal], capture_output=True, text=True, check=True).stdout)
        return file

    def write(self, name, text):
        path = pathlib.Path(self.path(name))
        path.write_text(text, encoding="utf-8")
        return str(path)


class Settings(Daemon):
    def test_a_file_says_what_flags_say(self):
        metrics = "127.0.0.1:0"
        conf = self.write("conf", f"# a server\nmetrics = {metrics}\nmax-bytes = 3M\nlog-format = json\n")
        server = self.serve("--config", conf)
        code, output, _ = self.push(server, self.model("large", 4))
        self.assert_fails((code, output), 1, "limit of 3")
        self.assertEqual(page(server, "/healthz"), (200, "ok\n"))

    def test_what_is_wrong_is_refused_with_its_line(self):
        for text, *patterns in (
                ("listen = :0\nlissten = :1\n", r"conf, line 2: there is no setting 'lissten'", r"Legal: listen, .*max-bytes"),
                ("max-bytes = 0\n", r"conf, line 1: max-bytes: '0' is not legal here \(legal: a size from 1"),
                ("log-level = loud\n", r"conf, line 1: log-level: .*legal: debug, info, warning, error, off"),
                ("drain = soon\n", r"line 1: drain: .*legal: seconds"),
                ("metrics = :9-1\n", r"line 1: metrics: .*HOST:FIRST-LAST"),
                ("once\n", r"line 1: 'once' is no setting"),
                ("quotas = /q\n", "--quotas names principals, whom --keys"),
                ("metrics-discovery = /d\n", "--metrics-discovery says where --metrics is"),
                ("gpu = host\nstore = /x\n", r"line 2: there is no setting 'store' of `fairlead serve --gpu`: remove", r"Legal: .*tenants"),
                ("gpu = host\nmax-bytes = 4G\nlisten = :1\nstore = /x\n",
                 r"line 2: there is no setting 'max-bytes' of `fairlead serve --gpu`, nor 'store' \(line 4\): remove or correct them")):
            with self.subTest(text):
                self.assert_fails(self.run_to_end("serve", "--config", self.write("conf", text)), 2, *patterns)
        self.assert_fails(self.run_to_end("serve", "--config", self.path("none")), 2, "none: No such file")

    def test_the_settings_that_are_shipped_are_legal(self):
        text = (ROOT / "deploy/fairlead.conf").read_text(encoding="utf-8")
        text = text.replace("/var/lib/fairlead", self.path("store")).replace("/run/fairlead", self.path("run"))
        text = re.sub(r"(?m)^#(\w[\w-]* = )", r"\1", text)  # those that are suggested, too
        self.keys("trainer")
        self.write("quotas", "trainer memory=1G\n")
        text = text.replace("/etc/fairlead", str(self.folder)).replace("0.0.0.0:7471", "127.0.0.1:0")
        for folder in ("store", "run"):
            os.mkdir(self.path(folder))
        server = self.serve("--config", self.write("conf", text))
        self.assertEqual(server.end(), 0, server.output)

    def test_a_port_for_data_that_was_asked_for_must_be_free(self):
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", "--tcp-port", port), 1,
                              rf"tcp port {port} is in use; choose another tcp.port \(--tcp-port\)")

    def test_logs_in_json_have_time_and_level(self):
        server = self.serve("--log-format", "json", "--max-bytes", "3M")
        self.push(server, self.model("large", 4))
        self.push(server, self.model("small", 1))
        self.assertEqual(server.end(), 0)
        lines = [json.loads(line) for line in server.output.splitlines()]
        self.assertEqual({tuple(line) for line in lines}, {("time", "level", "process", "message")})
        for line in lines:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(line["process"], server.process.pid)
        self.assertEqual({line["level"] for line in lines}, {"info", "error"})
        (refused,) = [line for line in lines if line["level"] == "error"]
        self.assertIn("limit of 3", refused["message"])

    def test_lines_have_dates_and_levels_and_a_least_one(self):
        server = self.serve()
        self.assertEqual(server.end(), 0)
        self.assertTrue(server.output)
        for line in server.output.splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} info: ")
        quiet = self.serve("--log-level", "error")
        self.assertEqual((quiet.end(), quiet.output), (0, ""))


class Strangers(Daemon):
    def test_a_default_log_names_who_was_refused_and_no_more_than_one_a_second(self):
        server = self.serve("--keys", self.keys("trainer"))
        os.rename(self.path("keys"), self.path("right"))
        wrong = self.keys("trainer")
        file, begin = self.model("m", 1), time.monotonic()
        for flags in ([], ["--keys", wrong, "--principal", "trainer"], [], []):
            self.assertEqual(self.push(server, file, *flags)[0], 1)
        server.wait_for(r" warning: refused \S*.*127\.0\.0\.1:\d+\)?: ")
        took = time.monotonic() - begin
        time.sleep(1)
        self.assertEqual(self.push(server, file)[0], 1)
        until(lambda: self.told(server) == 5, "each of the five is named or counted")
        self.assertEqual(server.end(), 0, server.output)
        self.assertLessEqual(len(self.refusals(server)), took + 3)

    @staticmethod
    def refusals(server):
        return re.findall(r" warning: refused .*", server.output)

    def told(self, server):
        lines = self.refusals(server)
        return len(lines) + sum(int(n) for line in lines for n in re.findall(r"\((\d+) more since the last", line))


class Manager:
    """A service manager's socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(PATIENCE)
        self.address = path

    def hears(self, word):
        """The first datagram with that line."""
        while True:
            said = self.socket.recv(4096).decode()
            if word in said.split("\n"):
                return said


class UnderAManager(Daemon):
    def serve_under(self, manager, *flags, **environment):
        ready = self.path("ready.json")
        server = self.start("serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--ready-file", ready, *flags,
                            env={"NOTIFY_SOCKET": manager.address, **environment})
        until(lambda: os.path.exists(ready), "it is ready")
        facts = json.loads(pathlib.Path(ready).read_text(encoding="utf-8"))
        server.listen, server.metrics_url = facts["listen"], f"http://{facts['metrics']}/metrics"
        return server

    def test_it_hears_of_readiness_reload_and_end(self):
        manager = Manager(self.path("notify"))
        self.addCleanup(manager.socket.close)
        server = self.serve_under(manager, "--keys", self.keys("trainer"), WATCHDOG_USEC="100000")
        self.assertIn("listening on", manager.hears("READY=1"))
        for _ in range(3):
            manager.hears("WATCHDOG=1")
        self.assertEqual(page(server, "/readyz"), (200, "ready\n"))
        server.process.send_signal(signal.SIGHUP)
        manager.hears("RELOADING=1")
        manager.hears("READY=1")
        server.process.terminate()
        self.assertRegex(manager.hears("STOPPING=1"), r"EXTEND_TIMEOUT_USEC=30000000")
        self.assertEqual(server.wait(), 0, server.output)

    def test_one_that_never_listens_holds_up_nobody(self):
        manager = Manager(self.path("notify"))
        self.addCleanup(manager.socket.close)
        server = self.serve_under(manager, WATCHDOG_USEC="2000")
        time.sleep(0.5)  # its socket is full by now
        code, output, _ = self.push(server, self.model())
        self.assertEqual(code, 0, output)
        self.assertEqual(server.end(), 0, server.output)

    def test_a_reload_without_anything_to_read_ends_nothing(self):
        manager = Manager(self.path("notify"))
        self.addCleanup(manager.socket.close)
        server = self.serve_under(manager)
        manager.hears("READY=1")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("SIGHUP: nothing is to be read again")
        manager.hears("RELOADING=1")
        manager.hears("READY=1")
        code, output, _ = self.push(server, self.model())
        self.assertEqual(code, 0, output)
        self.assertEqual(server.end(), 0, server.output)

    def test_the_device_server_tells_it_too(self):
        manager = Manager(self.path("notify"))
        self.addCleanup(manager.socket.close)
        server = self.serve_under(manager, "--gpu", "host", WATCHDOG_USEC="100000")
        manager.hears("READY=1")
        manager.hears("WATCHDOG=1")
        self.assertEqual(page(server, "/readyz"), (200, "ready\n"))
        server.process.terminate()
        manager.hears("STOPPING=1")
        self.assertEqual(server.wait(), 0, server.output)


class Draining(Daemon):
    def test_what_is_under_way_finishes_and_what_is_new_is_refused(self):
        server = self.serve("--drain", "60", metrics=True)
        file = self.model("m", 60)
        client = self.start("push", file, server.listen, "--transport", "tcp")
        server.wait_for("push of m:")
        client.process.send_signal(signal.SIGSTOP)
        try:
            server.process.terminate()
            server.wait_for("ending when what is under way is finished")
            self.assertEqual(page(server, "/readyz"), (503, "draining\n"))
            self.assertEqual(page(server, "/healthz"), (200, "ok\n"))
            self.assertEqual(self.metric(server, "fairlead_ready"), 0)
            code, output, _ = self.push(server, self.model("late"))
            self.assert_fails((code, output), 1, "this server is draining")
            self.assert_fails(self.run_to_end("pull", server.listen, "m", self.path("copy")), 1, "this server is draining")
            scrape = page(server, "/metrics")[1]
            self.assertIn('fairlead_serve_refusals_total{reason="draining"} 2', scrape)
        finally:
            client.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(), 0, client.output)
        self.assertRegex(client.output, "verified")
        self.assertEqual(server.wait(), 0, server.output)
        self.assertRegex(server.output, r"push of m: \d+ tensors verified, 0 failed")


    def test_who_has_connected_and_not_begun_is_told(self):
        server = self.serve("--drain", "60")
        # Nobody reads what it says, so that it stops at saying that it has connected.
        reads, says = os.pipe()
        os.set_blocking(says, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(says, b"\n" * 512)
        os.set_blocking(says, True)
        with subprocess.Popen([PROGRAM, "push", self.model("m", 1), server.listen], stdin=subprocess.DEVNULL, stdout=says,
                              stderr=subprocess.PIPE, text=True) as client:
            os.close(says)
            server.wait_for(" connected: ")
            self.assertEqual(server.end(), 0, server.output)
            with open(reads, encoding="utf-8") as rest:
                rest.read()
            self.assertRegex(client.stderr.read(), "this server is draining")
        self.assertEqual(client.returncode, 1)

    def test_a_load_balancer_has_time_to_see_it(self):
        server = self.serve("--drain", "60", "--drain-least", "60", metrics=True)
        server.process.terminate()
        server.wait_for("ending when what is under way is finished, not before 60 s")
        self.assertEqual(page(server, "/readyz"), (503, "draining\n"))
        self.assert_fails(self.push(server, self.model("late"))[:2], 1, "this server is draining")
        self.assertIsNone(server.process.poll())
        server.process.terminate()
        self.assertEqual(server.wait(), 0, server.output)
        self.assert_fails(self.run_to_end("serve", "--drain", "1", "--drain-least", "2"), 2, "--drain-least 2 is more than --drain 1")


class ReadyFile(Daemon):
    def begin(self, ready):
        server = self.start("serve", "--listen", "127.0.0.1:0", "--ready-file", ready)
        server.wait_for(" listening on ")
        until(lambda: self.names(ready, server), "its ready file is there")
        return server

    @staticmethod
    def names(ready, server):
        place = re.search(r" listening on (\S+)", server.output).group(1)
        return os.path.exists(ready) and json.loads(pathlib.Path(ready).read_text(encoding="utf-8"))["listen"] == place

    def test_of_one_that_was_killed_it_goes_before_the_next_begins(self):
        ready = self.path("ready")
        server = self.begin(ready)
        server.kill()
        server.wait()
        self.assertTrue(os.path.exists(ready))
        self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", "--ready-file", ready, "--store", self.path("no/where")),
                          1, "no/where")
        self.assertFalse(os.path.exists(ready))

    def test_of_one_that_lives_it_stays(self):
        ready = self.path("ready")
        server = self.begin(ready)
        self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", "--ready-file", ready, "--store", self.path("no/where")),
                          1, "no/where")
        self.assertTrue(self.names(ready, server))
        # The next takes its place; the end of the first does not take that away.
        other = self.begin(ready)
        self.assertEqual(server.end(), 0, server.output)
        self.assertTrue(self.names(ready, other))
        self.assertEqual(other.end(), 0, other.output)
        self.assertFalse(os.path.exists(ready))

    def test_what_is_no_file_of_ours_stays(self):
        for name in ("fifo", "link"):
            place = self.path(name)
            if name == "fifo":
                os.mkfifo(place)
            else:
                os.symlink("/dev/null", place)
            server = self.start("serve", "--listen", "127.0.0.1:0", "--ready-file", place)
            if name == "fifo":
                with open(place, encoding="utf-8") as reader:  # it waits for one
                    self.assertIn("listen", json.loads(reader.read()))
            server.wait_for(" listening on ")
            self.assertEqual(server.end(), 0, server.output)
            self.assertTrue(os.path.lexists(place))


class Store(Daemon):
    def pull(self, server, name):
        copy = self.path(f"copy-{time.monotonic_ns()}")
        code, output = self.run_to_end("pull", server.listen, name, copy)
        self.assertEqual(code, 0, output)
        return read_safetensors(copy)

    def test_models_are_there_again_after_a_kill(self):
        store, files = self.path("store"), {name: self.model(name, 2, seed) for seed, name in enumerate("abc")}
        server = self.serve("--store", store, metrics=True)
        for file in files.values():
            self.assertEqual(self.push(server, file)[0], 0)
        self.assertEqual(self.push(server, self.model("a", 1, 9))[0], 0)  # another of the same name
        self.assertGreater(self.metric(server, "fairlead_store_written_bytes_total"), 7_000_000)
        other = self.run_to_end("serve", "--listen", "127.0.0.1:0", "--store", store)
        self.assert_fails(other, 1, "another server keeps its models in .*store")
        server.kill()
        server.wait()
        server = self.serve("--store", store, metrics=True)
        server.wait_for("3 models of .* loaded and verified")
        self.assertEqual(self.metric(server, "fairlead_store_models_loaded_total"), 3)
        for name, file in files.items():
            self.assertEqual(self.pull(server, name), read_safetensors(file))

    def test_a_damaged_one_is_named_and_set_aside(self):
        store = self.path("store")
        server = self.serve("--store", store)
        for name in ("good", "bad"):
            self.assertEqual(self.push(server, self.model(name))[0], 0)
        self.assertEqual(server.end(), 0, server.output)
        path = pathlib.Path(store, "all", "bad.model")
        with open(path, "r+b") as file:
            file.seek(1_000_000)
            byte = file.read(1)
            file.seek(1_000_000)
            file.write(bytes([byte[0] ^ 1]))
        server = self.serve("--store", store, metrics=True)
        server.wait_for(r"error: model bad: .*bad\.model is damaged: tensor \S+ does not have the CRC-32 .*it was set aside as .*bad\.model\.damaged")
        self.assertEqual(self.metric(server, "fairlead_store_damaged_total"), 1)
        server.wait_for(r"1 models of 2\.\d+ MB loaded and verified")  # without the bytes of the other
        self.assertEqual(sorted(os.listdir(path.parent)), ["bad.model.damaged", "good.model"])
        self.pull(server, "good")
        self.assert_fails(self.run_to_end("pull", server.listen, "bad", self.path("copy")), 1, "no model 'bad' here")

    def test_models_that_leave_memory_leave_the_disk(self):
        store = self.path("store")
        server = self.serve("--store", store, "--max-bytes", "5M")
        for name in ("a", "b", "c"):
            self.assertEqual(self.push(server, self.model(name, 2))[0], 0)
        server.wait_for("warning: model a of .* dropped: it made room for c")
        self.assertEqual(sorted(os.listdir(pathlib.Path(store, "all"))), ["b.model", "c.model"])
        self.assertEqual(server.end(), 0, server.output)
        server = self.serve("--store", store, "--max-bytes", "3M")
        server.wait_for("warning: model b stays on the disk and is not served: newer ones take --max-bytes 3M")
        self.pull(server, "c")
        self.assertEqual(sorted(os.listdir(pathlib.Path(store, "all"))), ["b.model", "c.model"])

    def test_one_that_is_too_large_hides_no_others(self):
        store = self.path("store")
        server = self.serve("--store", store)
        for name, megabytes in (("a", 2), ("b", 1), ("huge", 6)):
            self.assertEqual(self.push(server, self.model(name, megabytes))[0], 0)
        self.assertEqual(server.end(), 0, server.output)
        server = self.serve("--store", store, "--max-bytes", "5M")
        server.wait_for("warning: model huge stays on the disk and is not served: .* more than --max-bytes 5M")
        for name in ("a", "b"):
            self.pull(server, name)
        self.assertEqual(sorted(os.listdir(pathlib.Path(store, "all"))), ["a.model", "b.model", "huge.model"])

    def test_it_ends_while_models_load(self):
        store = self.path("store")
        server = self.serve("--store", store)
        for name in ("a", "b"):
            self.assertEqual(self.push(server, self.model(name))[0], 0)
        self.assertEqual(server.end(), 0, server.output)
        # A signal that has come already when it begins.
        blocked = ("env", "--block-signal=TERM", "sh", "-c", 'kill -TERM $$; exec "$@"', "sh")
        ready = self.path("never")
        server = self.start("serve", "--listen", "127.0.0.1:0", "--store", store, "--ready-file", ready, within=blocked)
        self.assertEqual(server.wait(), 0, server.output)
        self.assertRegex(server.output, "ending, with 0 of 2 models loaded")
        self.assertNotIn("listening on", server.output)
        server = self.serve("--store", store)
        server.wait_for("2 models of .* loaded and verified")

    def test_a_disk_that_takes_no_more_is_said_to_who_pushes(self):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if hard != resource.RLIM_INFINITY and hard < 1_000_000:
            self.skipTest("files may not be large here")
        store = self.path("store")
        server = self.serve("--store", store, metrics=True, within=("prlimit", "--fsize=1500000"))
        code, output, _ = self.push(server, self.model("large", 2))
        self.assert_fails((code, output), 1, r"make room for \d+ bytes in .*large\.\d+\.draft: File too large")
        self.assertEqual(self.push(server, self.model("small", 1))[0], 0)
        self.assertEqual(os.listdir(pathlib.Path(store, "all")), ["small.model"])
        self.assertEqual(self.metric(server, "fairlead_store_failures_total"), 1)
        self.assert_fails(self.run_to_end("pull", server.listen, "large", self.path("copy")), 1, "no model 'large' here")

    def test_a_folder_that_cannot_be_used(self):
        file = self.write("file", "")
        self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", "--store", file), 1, "file: Not a directory")
        self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", "--store", self.path("no/where")), 1,
                          "cannot create .*no/where")


class Quotas(Daemon):
    def test_each_principal_has_its_own_and_sighup_changes_them(self):
        keys, quotas = self.keys("trainer", "store"), self.write("quotas", "trainer memory=3M sessions=1\n")
        server = self.serve("--keys", keys, "--quotas", quotas, metrics=True)

        def push(who, name, megabytes, *flags):
            return self.push(server, self.model(name, megabytes), "--keys", keys, "--principal", who, *flags)

        self.assertEqual(push("trainer", "a", 2)[0], 0)
        self.assertEqual(push("store", "s", 6)[0], 0)
        self.assertEqual(push("trainer", "b", 2)[0], 0)
        server.wait_for("model a of .* dropped: it made room for b")
        self.assert_fails(push("trainer", "c", 4)[:2], 1, "larger than the quota of 'trainer'")
        self.assertIn('fairlead_serve_refusals_total{reason="too_large"} 1', page(server, "/metrics")[1])

        one = self.start("push", self.model("slow", 1), server.listen, "--keys", keys, "--principal", "trainer")
        server.wait_for("push of slow:")
        one.process.send_signal(signal.SIGSTOP)
        try:
            status = json.loads(page(server, "/status")[1])
            if status["clients"]:  # it may be through already
                self.assertEqual(push("trainer", "d", 1)[0], 1)  # why, it may hear too late: its session is closed
                server.wait_for("'trainer' has the 1 sessions of its quota")
        finally:
            one.process.send_signal(signal.SIGCONT)
        self.assertEqual(one.wait(), 0, one.output)

        self.write("quotas", "trainer memory=lots\n")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(r"quotas, line 1: memory: .*what was read before still holds")
        self.write("quotas", "trainer memory=9M\n")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the quotas and the keys were read again")
        self.assertEqual(push("trainer", "c", 4)[0], 0)
        self.assertEqual(server.end(), 0, server.output)


class Discovery(Daemon):
    def targets(self, folder):
        found = {}
        for path in pathlib.Path(folder).glob("*.json"):
            ((group),) = json.loads(path.read_text(encoding="utf-8"))
            found[group["targets"][0]] = group["labels"]
        return found

    def test_processes_of_a_host_share_a_range_of_ports(self):
        with contextlib.ExitStack() as taken:  # a range that is free, but for its second port
            while True:
                # Below those that the system gives to whoever asks for any: nobody else comes there meanwhile.
                port = random.randrange(20_000, 32_000)
                with contextlib.suppress(OSError), contextlib.ExitStack() as others:
                    for each in (port, port + 2, port + 3):
                        others.enter_context(socket.socket()).bind(("127.0.0.1", each))
                    second = taken.enter_context(socket.socket())
                    second.bind(("127.0.0.1", port + 1))
                    second.listen()
                    break
            folder, ports = self.path("found"), f"127.0.0.1:{port}-{port + 3}"
            flags = ["--metrics", ports, "--metrics-discovery", folder]
            servers = [self.serve(*flags) for _ in range(3)]
            found = self.targets(folder)
            self.assertEqual(set(found), {server.metrics_url.split("/")[2] for server in servers})
            self.assertNotIn(f"127.0.0.1:{port + 1}", found)
            for server in servers:
                labels = found[server.metrics_url.split("/")[2]]
                self.assertEqual(labels, {"service": "serve", "process": str(server.process.pid)})
                self.assertEqual(page(server, "/healthz")[0], 200)
            self.assert_fails(self.run_to_end("serve", "--listen", "127.0.0.1:0", *flags), 1, "cannot serve metrics on .*in use")
            servers[0].kill()
            servers[0].wait()
            self.assertEqual(len(self.targets(folder)), 3)  # Prometheus sees that it is down
            self.assertEqual(servers[1].end(), 0)
            self.assertEqual(len(self.targets(folder)), 2)
            fourth = self.serve(*flags)
            self.assertEqual(set(self.targets(folder)),
                             {server.metrics_url.split("/")[2] for server in (servers[2], fourth)})


class Unit(Daemon):
    def test_the_unit_is_hardened(self):
        unit = ROOT / "deploy/systemd/fairlead.service"
        try:
            said = subprocess.run(["systemd-analyze", "security", "--offline=yes", unit], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            self.skipTest("no systemd-analyze here")
        overall = re.search(r"Overall exposure level for fairlead.service: ([\d.]+)", said.stdout)
        if overall is None:
            self.skipTest(f"systemd-analyze says nothing offline: {said.stderr.strip()[-200:]}")
        self.assertLessEqual(float(overall[1]), 3.0, said.stdout)


if __name__ == "__main__":
    main()
