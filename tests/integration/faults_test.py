"""Lossy, silent and dying: the push verifies all the same, or the survivor says so by itself."""

import json
import os
import pathlib
import re

from harness import Case, main, random_model, write_raw, write_safetensors

VERBS = ["--transport", "verbs:soft0"]
# Slow enough that there is a middle to be killed in.
LOSSY = [*VERBS, "--packet-io", "udp,drop=0.02,seed=3"]


class Lossy(Case):
    def test_drop_and_reorder(self):
        file = self.path("model.safetensors")
        model = random_model(24)
        write_safetensors(file, model)
        for profile in ("full", "pvrdma"):
            with self.subTest(profile=profile):
                flags = [*VERBS, "--soft-profile", profile, "--packet-io", "udp,drop=0.01,reorder=0.01,seed=5"]
                server = self.serve(*flags, "--check", "arrival")
                code, output, report = self.push(server, file, *flags, "--no-failover")
                self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
                self.assertEqual(report["verified"], len(model))
                self.assertEqual(report["transport"], "verbs:soft0")


class Silent(Case):
    def push_over_a_path_that_goes_silent(self, *flags):
        file = self.path("model.safetensors")
        model = random_model(60)
        write_safetensors(file, model)
        server = self.serve("--check", "arrival")
        result = self.push(server, file, *VERBS, "--packet-io", "udp,silent_after=3000", *flags)
        return (*result, server, model)

    def test_finishes_over_tcp(self):
        code, output, report, server, model = self.push_over_a_path_that_goes_silent()
        self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
        self.assertEqual(report["verified"], len(model))
        self.assertEqual(report["transport"], "tcp")
        self.assertEqual(len(report["path_changes"]), 1)
        for text in (output, server.output):
            self.assertEqual(len(re.findall("path.* changed: ", text)), 1, text)  # said, and said once
        self.assertIn(f"{len(model)} tensors verified, 0 failed", server.output)

    def test_fails_where_failover_is_refused(self):
        code, output, _, server, _ = self.push_over_a_path_that_goes_silent("--no-failover")
        self.assert_fails((code, output), 1, "push: error")
        file = self.path("small.safetensors")
        write_safetensors(file, random_model(1))
        self.assertEqual(self.push(server, file)[0], 0, server.output)


class Death(Case):
    DRAIN = ("--drain", 1000)

    def setUp(self):
        super().setUp()
        self.file = self.path("model.safetensors")
        write_safetensors(self.file, random_model(120))
        # tcp is quick: something larger, of holes, so that there is a middle and yet little to write.
        self.large = self.path("large.safetensors")
        size = 8_000_000
        write_raw(self.large, json.dumps({f"t{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
                                          for i in range(75)}).encode(), b"")
        os.truncate(self.large, os.path.getsize(self.large) + 75 * size)

    def in_the_middle(self, transport):
        file = self.file if transport is LOSSY else self.large
        for _ in range(5):
            server = self.serve(*self.DRAIN, metrics=True)
            client = self.start("push", file, server.listen, *transport)
            client.wait_for("^[25].* % of")
            if "verified" not in client.output:
                return server, client
            server.end()
        self.fail("five pushes were over before anything could be killed in their middle")

    def test_kill_the_client(self):
        for transport in (LOSSY, ["--transport", "tcp"], ["--transport", "shm"]):
            with self.subTest(transport=transport):
                server, client = self.in_the_middle(transport)
                client.kill()
                server.wait_for("lost: .*abandoned")
                self.assertNotIn("silent for", server.output)  # its connection says so, not the want of news
                self.assertEqual(self.metric(server, "fairlead_serve_model_bytes"), 0)
                self.assertEqual(self.metric(server, 'fairlead_serve_pushes_total{result="abandoned"}'), 1)
                code, output, _ = self.push(server, self.file)
                self.assertEqual(code, 0, output)

    def test_kill_the_server(self):
        for transport in (LOSSY, ["--transport", "tcp"], ["--transport", "shm"]):
            with self.subTest(transport=transport):
                server, client = self.in_the_middle(transport)
                server.kill()
                self.assertEqual(client.wait(), 1, client.output)
                self.assertRegex(client.output, "push: error: .*lost the server")
                self.assertNotIn("silent for", client.output)

    def test_end_the_server_orderly(self):
        server, client = self.in_the_middle(LOSSY)
        server.process.terminate()
        self.assertEqual(server.wait(), 0, server.output)
        self.assertRegex(server.output, "ending when what is under way is finished")
        self.assertEqual(client.wait(), 0, client.output + "\n--- server:\n" + server.output)
        self.assertRegex(client.output, "tensors verified")

    def test_end_the_server_at_once(self):
        server, client = self.in_the_middle(LOSSY)
        server.process.terminate()
        server.wait_for("a second signal ends it now")
        server.process.terminate()
        self.assertEqual(server.wait(), 0, server.output)
        self.assertRegex(server.output, "what was under way is dropped")
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "push: error")


class Truncation(Case):
    """Someone cuts the file while it is being sent or received: an error with a reason, no signal."""

    def test_while_its_sums_are_computed(self):
        size = 400_000_000  # of holes: nothing to write, something to read
        file = self.path("model.safetensors")
        write_raw(file, json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode(), b"")
        whole = os.path.getsize(file) + size
        server = self.serve()
        for transport in (["--transport", "tcp"], ["--transport", "shm"], VERBS):
            with self.subTest(transport=transport):
                os.truncate(file, whole)
                client = self.start("push", file, server.listen, *transport, "--no-failover")
                client.wait_for("connected to")
                os.truncate(file, 4096)
                self.assertEqual(client.wait(), 1, client.output)
                self.assertRegex(client.output, "push: error: .*(model.safetensors ends at byte|somebody cut it|changed its size)")
        for transport in (["--transport", "tcp"], ["--transport", "shm"]):
            with self.subTest(transport=transport, cut="within the last page"):  # which reads as zeros, and is no fault
                os.truncate(file, whole)
                client = self.start("push", file, server.listen, *transport, "--checksum", "off")
                client.wait_for("connected to")
                os.truncate(file, whole - 1)
                self.assertEqual(client.wait(), 1, client.output)
                self.assertRegex(client.output, "push: error: .*(somebody cut it|changed its size)")
        small = self.path("small.safetensors")
        write_safetensors(small, random_model(1))
        self.assertEqual(self.push(server, small)[0], 0, server.output)

    def test_of_the_file_that_is_pushed(self):
        file = self.path("model.safetensors")
        write_safetensors(file, random_model(120))
        server = self.serve()
        client = self.start("push", file, server.listen, *LOSSY, "--no-failover")
        client.wait_for("^[1-5].* % of")
        os.truncate(file, 4096)
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "push: error: .*(its memory is gone|ends at byte)")
        small = self.path("small.safetensors")
        write_safetensors(small, random_model(1))
        code, output, _ = self.push(server, small)
        self.assertEqual(code, 0, output)

    def test_of_the_file_that_is_pulled_into(self):
        file, copy = self.path("model.safetensors"), self.path("copy.safetensors")
        write_safetensors(file, random_model(120))
        server = self.serve()
        code, output, _ = self.push(server, file)
        self.assertEqual(code, 0, output)
        client = self.start("pull", server.listen, "model", copy, *LOSSY, "--no-failover")
        client.wait_for("^[1-5].* % of")
        for part in pathlib.Path(copy).parent.glob("*copy.safetensors*"):
            os.truncate(part, 4096)
        self.assertEqual(client.wait(), 1, client.output)
        self.assertRegex(client.output, "its memory is gone")
        self.assertRegex(client.output, "pull: error: ")


if __name__ == "__main__":
    main()
