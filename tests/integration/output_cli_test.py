"""Standard output and its like that are missing, cannot be written, or whose reader has left."""

import json
import os
import pathlib
import subprocess
import time

from harness import PATIENCE, PROGRAM, Case, main


def closed(redirections, *words):
    """The program with descriptors that the shell closes, such as '>&-'."""
    return subprocess.run(["/bin/sh", "-c", f'exec "$0" "$@" {redirections}', PROGRAM, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)


class Output(Case):
    def test_what_takes_the_place_of_a_missing_descriptor_gets_no_lines(self):
        report = self.path("report.json")
        for redirections in (">&-", ">&- 2>&-", "<&- >&- 2>&-"):
            with self.subTest(redirections):
                done = closed(redirections, "bench", "bw", "--local", "--transport", "tcp", "--duration", "0.05", "--json", report)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(json.loads(pathlib.Path(report).read_text())["results"][0]["verified"])
        self.assertEqual(closed(">&-", "version").returncode, 0)

    def test_why_it_could_not_be_written_is_said(self):
        for path, flags, why in (("/dev/null", os.O_RDONLY, "Bad file descriptor"), ("/dev/full", os.O_WRONLY, "disk is full|No space")):
            fd = os.open(path, flags)
            done = subprocess.run([PROGRAM, "version"], stdout=fd, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
            os.close(fd)
            self.assertEqual(done.returncode, 1, path)
            self.assertRegex(done.stderr, why)

    def test_a_server_whose_log_nobody_reads_any_more_ends_in_order(self):
        ready = self.path("ready.json")
        reader, writer = os.pipe()
        with subprocess.Popen([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--ready-file", ready], stdin=subprocess.DEVNULL,
                              stdout=writer, stderr=subprocess.PIPE, text=True) as server:
            os.close(writer)
            end = time.monotonic() + PATIENCE
            while not os.path.exists(ready) and time.monotonic() < end:
                time.sleep(0.02)
            os.close(reader)
            server.terminate()
            _, errors = server.communicate(timeout=PATIENCE)
            self.assertEqual((server.returncode, errors), (0, ""))


if __name__ == "__main__":
    main()
