"""`fairlead status`, and what programs show on a terminal and in a pipe."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import threading

from harness import PATIENCE, PROGRAM, Case, main, random_model, write_safetensors


class Terminal:
    """A program on a terminal of its own, and what it wrote there."""

    def __init__(self, *words):
        self.text, here, there = "", *pty.openpty()
        self.here, self._changed = here, threading.Condition()
        self.process = subprocess.Popen([PROGRAM, *map(str, words)], stdin=there, stdout=there, stderr=there)
        os.close(there)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while True:
            try:
                data = os.read(self.here, 65536)
            except OSError:  # EIO: the last that had it open has gone
                data = b""
            with self._changed:
                self.text += data.decode(errors="replace")
                self._changed.notify_all()
            if not data:
                return

    def wait_for(self, count, words):
        with self._changed:
            if not self._changed.wait_for(lambda: self.text.count(words) >= count, PATIENCE):
                raise AssertionError(f"not {count} times {words!r} in:\n{self.text!r}")

    def end(self):
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        os.close(self.here)
        return code


class Status(Case):
    def model(self, megabytes=2):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(megabytes))
        return file

    def where(self, server):
        return server.metrics_url.split("/")[2]

    def status(self, server):
        code, output = self.run_to_end("status", self.where(server), "--json", "-", "--interval", "0.1")
        self.assertEqual(code, 0, output)
        return json.loads(output)

    def test_a_server_of_models(self):
        server = self.serve("--transport", "tcp", metrics=True)
        before = self.status(server)
        self.assertEqual((before["schema"], before["service"], before["state"], before["listen"]),
                         ("fairlead.status/2", "serve", "ready", server.listen))
        self.assertEqual((before["clients"], before["models"], before["tenants"]), ([], [], []))
        file = self.model()
        self.assertEqual(self.push(server, file)[0], 0)
        size = sum(len(each["data"]) for each in random_model(2).values())
        now = self.status(server)
        self.assertEqual(now["models"], [{"name": "m", "owner": "", "tensors": len(random_model(2)), "bytes": size}])
        self.assertEqual(now["sessions"], 1)
        self.assertGreater(now["transports"][0]["bytes_received"], size)
        client = self.start("push", self.model(60), server.listen, "--transport", "tcp")
        server.wait_for(r"push of m: .*6\d\.\d MB")
        client.process.send_signal(signal.SIGSTOP)
        try:
            there = self.status(server)["clients"]
            for each in there:  # it may be through already
                self.assertEqual((each["transport"], each["doing"], each["model"]), ("tcp", "push", "m"))
                self.assertLessEqual(each["arrived_bytes"], each["bytes"])
            code, table = self.run_to_end("status", self.where(server), "--interval", "0.1")
            self.assertEqual(code, 0, table)
            self.assertRegex(table, r"(?m)^tcp +0 +")
            if there:
                self.assertIn("push of m, ", table)
        finally:
            client.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(), 0, client.output)

    def test_it_refreshes_on_a_terminal_until_it_is_told_to_end(self):
        server = self.serve(metrics=True)
        seen = Terminal("status", self.where(server), "--interval", "0.05")
        seen.wait_for(4, "listening on " + server.listen)
        seen.process.send_signal(signal.SIGINT)
        self.assertEqual(seen.end(), 0, seen.text)
        self.assertGreaterEqual(seen.text.count("\x1b[H\x1b[J"), 4)

    def test_who_is_no_server_is_said(self):
        self.assert_fails(self.run_to_end("status", "127.0.0.1:1"), 1, "cannot reach 127.0.0.1:1")

    def test_bars_on_a_terminal_lines_in_a_pipe_and_nothing_if_quiet(self):
        server = self.serve()
        file = self.model(60)
        seen = Terminal("push", file, server.listen, "--transport", "verbs:soft0")
        self.assertEqual(seen.end(), 0, seen.text)
        self.assertRegex(seen.text, r"\r\[[#.]{40}\]")
        code, output = self.run_to_end("push", file, server.listen)
        self.assertEqual(code, 0, output)
        self.assertNotIn("\r", output)
        self.assertRegex(output, r"(?m)^\d+ % of")
        for words in (["push", file, server.listen], ["pull", server.listen, "m", self.path("copy")]):
            self.assertEqual(self.run_to_end(*words, "--quiet"), (0, ""))
        code, output = self.run_to_end("push", file, server.listen, "--quiet", "--json", "-")
        self.assertEqual((code, json.loads(output)["schema"]), (0, "fairlead.push/1"))
        self.assert_fails(self.run_to_end("pull", server.listen, "none", self.path("x"), "--quiet"), 1, "no model 'none'")
        code, output = self.run_to_end("pull", server.listen, "--list", "--quiet")
        self.assertRegex(output, r"\Am  \d+ tensors, [^\n]*\Z")

    def test_a_long_bench_has_a_bar_on_a_terminal_alone(self):
        words = ["bench", "lat", "--transport", "tcp", "--local", "--duration", "3"]
        seen = Terminal(*words)
        seen.wait_for(2, " of 3 s")
        self.assertEqual(seen.end(), 0, seen.text)
        self.assertIn("8: 0 of 3 s", seen.text)
        report = self.path("report.json")
        self.assertEqual(self.run_to_end(*words[:-1], "0.1", "--quiet", "--json", report), (0, ""))
        self.assertTrue(json.loads(pathlib.Path(report).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
