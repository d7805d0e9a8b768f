"""Wrong flags, wrong files, wrong addresses, wrong peers: a clear error on the side that can act, exit code not 0, and
the server goes on serving others."""

import json
import os
import pathlib
import signal
import socket
import stat
import struct
import subprocess

from harness import PATIENCE, PROGRAM, Case, main, random_model, tensor, write_raw, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Usage(Case):
    def test_no_command_and_unknown_command(self):
        self.assert_fails(self.run_to_end(), 2, "Commands:")
        self.assert_fails(self.run_to_end("sevre"), 2, "no command 'sevre'", "serve, push, pull")

    def test_unknown_flags_name_the_known_ones(self):
        for command in ("serve", "push", "pull", "bench", "devices", "topo", "version"):
            self.assert_fails(self.run_to_end(command, "--frobnicate"), 2, "--frobnicate")
        self.assert_fails(self.run_to_end("push", "a", "b:1", "--frobnicate"), 2, "there is no flag --frobnicate")

    def test_bad_values_name_the_legal_ones(self):
        cases = [
            (("push", "a", "b:1", "--transport", "pigeon"), "legal: auto, verbs"),
            (("push", "a", "nonsense"), "nonsense"),
            (("push", "a", ":7471"), "HOST:PORT"),
            (("push", "a", "http://b:1"), "'http://b:1' is not an address: it is a URL; write HOST:PORT"),
            (("run", "ib_write_bw"), "too many words: ib_write_bw; give the program after '--': fairlead run"),
            (("run", "ib_write_bw", "-d", "soft0"), "there is no flag -d; give the program after '--'"),
            (("run", "-d", "soft0", "--", "true"), "there is no flag -d\\n"),
            (("gain", "--local", "--candidate", "foo"), "--candidate: 'foo' is not legal here .legal: auto, verbs"),
            (("bench", "allreduce", "--local", "2", "--sizes", "8,3"), "--sizes: 3: a sum has at least 4 bytes"),
            (("push", "a", "b:0"), "from 1 to 65535"),
            (("push", "a", "b:1", "--name", "x/y"), "legal: 1 to 128 of"),
            (("serve", "--max-bytes", "lots"), "K, M, G"),
            (("serve", "--listen", "127.0.0.1:70000"), "70000"),
            (("bench",), "bw or lat"),
            (("bench", "throughput", "--local"), "legal: bw, lat"),
            (("bench", "bw"), "--local"),
            (("bench", "bw", "--local", "--size", "12Q"), "unknown unit"),
            (("bench", "bw", "--local", "--op", "fly"), "legal: write, read, send"),
            (("bench", "bw", "--local", "--op", "send", "--size", "1G"), "message"),
            (("bench", "lat", "--local", "--duration", "0"), "seconds"),
            (("pull", "a:1", "model"), "--list"),
        ]
        for words, pattern in cases:
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end(*words), 2, pattern)

    def test_environment(self):
        result = self.run_to_end("devices", env={"FAIRLEAD_TRANSPORT": "pigeon"})
        self.assert_fails(result, 2, "FAIRLEAD_TRANSPORT", "legal: auto")
        result = self.run_to_end("bench", "bw", "--local", "--transport", "verbs:soft0",
                                 env={"FAIRLEAD_PACKET_IO": "udp,frop=1"})
        self.assert_fails(result, 2, "frop")

    def test_a_variable_that_is_for_one_command_is_none_for_another(self):
        trace = str(ROOT / "bench/trace/models/gpt2_small_decode.jsonl")
        for words in (["bench", "trace", trace, "--emulate"], ["version"]):
            code, output = self.run_to_end(*words, env={"FAIRLEAD_BANDWIDTH": "mlx5_0=12.5"})
            self.assertEqual(code, 0, output)
        code, output = self.run_to_end("doctor", env={"FAIRLEAD_ROOT": "node1:7473"})  # where rank 0 of a job is
        self.assertNotIn("node1", output)
        self.assert_fails(self.run_to_end("topo", "--plan", env={"FAIRLEAD_BANDWIDTH": "10G"}), 2,
                          "environment variable FAIRLEAD_BANDWIDTH: '10G' is wrong; legal: NAME=GB/s")
        self.assert_fails(self.run_to_end("serve", env={"FAIRLEAD_ONCE": "maybe"}), 2,
                          "environment variable FAIRLEAD_ONCE: 'maybe' is not legal here .legal: 1, true")
        for words, variable in ((["status"], "FAIRLEAD_ONCE"), (["bench", "trace"], "FAIRLEAD_BANDWIDTH"), (["doctor"], "FAIRLEAD_ROOT")):
            self.assertNotIn(variable, self.run_to_end(*words, "--help")[1])

    def test_values_that_only_the_engine_can_judge(self):
        for flags, pattern in ((["--packet-io", "udp,frop=1"], "'frop=1' is wrong: legal: udp"), (["--soft-address", "1.2.3.999"], "numeric")):
            for words in (["push", "m", "127.0.0.1:9"], ["pull", "127.0.0.1:9", "m", self.path("out")], ["devices"],
                          ["serve", "--listen", "127.0.0.1:0"], ["bench", "--server", "127.0.0.1:0"],
                          ["bench", "bw", "--local"], ["bench", "bw", "127.0.0.1:9"]):
                with self.subTest(words=words, flags=flags):
                    result = self.run_to_end(*words, "--transport", "verbs:soft0", *flags)
                    self.assert_fails(result, 2, "invalid argument: .*" + pattern)

    def test_both_ends_of_a_wire_cannot_have_one_address(self):
        result = self.run_to_end("bench", "bw", "--local", "--transport", "verbs:soft0", "--packet-io",
                                 "dpdk:memif,ip=10.0.0.1")
        self.assert_fails(result, 2, "both ends of 'dpdk:memif,ip=10.0.0.1' would have one address; leave ip= out")

    def test_nobody_at_the_other_end(self):
        port = f"dpdk:net_memif0,role=client,socket=fairlead-nobody-{os.getpid()}"
        code, output = self.run_to_end("bench", "bw", "--local", "--transport", "verbs:soft0", "--packet-io", port)
        if "there is no libfairlead-dpdk.so" in output:
            self.skipTest("the module for DPDK was not built")
        self.assert_fails((code, output), 1, "port 1 of soft0 has no link: nobody is at the other end of its wire")

    def test_log_level(self):
        self.assert_fails(self.run_to_end("version", env={"FAIRLEAD_LOG": "foo"}), 2, "FAIRLEAD_LOG", "legal: debug, info")

    def test_switches_in_the_environment(self):
        self.assert_fails(self.run_to_end("push", "a", "b:1", env={"FAIRLEAD_NO_FAILOVER": "maybe"}), 2,
                          "FAIRLEAD_NO_FAILOVER", "legal: 1, true")

    def test_output_that_cannot_be_written(self):
        for words in (("--help",), ("version",), ("push", "--help"), ("devices",)):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("fairlead: error:", done.stderr)

    def test_a_reader_that_left_is_no_error_to_talk_about(self):
        """As of other programs in a pipe into head, which SIGPIPE ends: 128 and its number, and no word."""
        for words in (("--help",), ("bench", "--help"), ("version",), ("devices",), ("bench", "bw", "--local", "--transport", "tcp", "--duration", "0.05")):
            with self.subTest(words=words):
                reader, writer = os.pipe()
                os.close(reader)
                done = subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True,
                                      timeout=PATIENCE, check=False)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGPIPE, ""))

    def test_help_everywhere(self):
        for words in (("--help",), ("help",), *(((c, "--help")) for c in ("serve", "push", "pull", "bench", "devices"))):
            code, output = self.run_to_end(*words)
            self.assertEqual(code, 0, output)
            self.assertIn("fairlead", output)
        code, output = self.run_to_end("version")
        self.assertEqual(code, 0)
        self.assertRegex(output, r"fairlead \d+\.\d+\.\d+\ncommit +\w+")

    def test_unknown_device(self):
        self.assert_fails(self.run_to_end("bench", "bw", "--local", "--transport", "verbs:mlx5_99"), 1, "mlx5_99")


class Files(Case):
    """Refused before anything is sent: the address need not exist."""

    def refuse(self, header, data, *patterns, length=None):
        file = self.path("bad.safetensors")
        write_raw(file, header.encode() if isinstance(header, str) else header, data, length)
        self.assert_fails(self.run_to_end("push", file, "127.0.0.1:9"), 1, "bad.safetensors", *patterns)

    def test_missing(self):
        self.assert_fails(self.run_to_end("push", self.path("none.safetensors"), "127.0.0.1:9"), 1, "none.safetensors",
                          "No such file")
        self.assert_fails(self.run_to_end("push", str(self.folder), "127.0.0.1:9"), 1, "holds no \\*.safetensors")
        os.mkfifo(self.path("pipe"))
        self.assert_fails(self.run_to_end("push", self.path("pipe"), "127.0.0.1:9", timeout=20), 1, "no regular file")

    def test_header_length(self):
        self.refuse("{}", b"", "header length 9999999", length=9_999_999)
        self.refuse("{}", b"", "above the limit", length=2**63)
        write = self.path("bad.safetensors")
        with open(write, "wb") as file:
            file.write(b"1234567")
        self.assert_fails(self.run_to_end("push", write, "127.0.0.1:9"), 1, "too short")

    def test_truncated(self):
        good = self.path("good.safetensors")
        write_safetensors(good, {"a": tensor("F32", [1000], bytes(4000))})
        size = os.path.getsize(good)
        for cut in (size - 1, size - 4000, 20, 8):
            os.truncate(good, cut)
            self.assert_fails(self.run_to_end("push", good, "127.0.0.1:9"), 1, "good.safetensors")

    def test_contents(self):
        self.refuse('{"a":{"dtype":"F 33","shape":[1],"data_offsets":[0,4]}}', bytes(4), "tensor 'a'", "dtype 'F 33'")
        self.refuse('{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],'
                    '"data_offsets":[2,6]}}', bytes(6), "tensor 'b'", "overlap")
        self.refuse('{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}', bytes(6), "pass the end")
        self.refuse('{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}', b"", "2\\^63")
        self.refuse('{"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0]}}', b"", "2\\^63")
        self.refuse('{"a":', b"", "JSON")

    def test_what_would_drive_a_terminal_is_shown_escaped(self):
        file = self.path("bad\x1b[2J.safetensors")
        write_raw(file, b'{"a\\u001b]0;title\\u0007\\nforged":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', bytes(4))
        code, output = self.run_to_end("push", file, "127.0.0.1:9")
        self.assert_fails((code, output), 1, r"bad\\x1b\[2J", r"a\\x1b\]0;title\\x07\\nforged")
        self.assertNotIn("\x1b", output)
        self.assertNotIn("\x07", output)

    def test_metadata_above_the_limit(self):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1), {"tags": "x" * 2**20})
        self.assert_fails(self.run_to_end("push", file, "127.0.0.1:9"), 1, "out of range", "bytes of metadata", "the limit is 786432")

    def test_an_index_without_its_shards(self):
        index = self.path("m.safetensors.index.json")
        pathlib.Path(index).write_text(json.dumps({"weight_map": {"a": "m-00001-of-00001.safetensors"}}))
        for what in (index, str(self.folder)):
            self.assert_fails(self.run_to_end("push", what, "127.0.0.1:9"), 1, "m-00001-of-00001.safetensors", "No such file")


class Outputs(Case):
    """What cannot be written is refused before anything is sent: the address need not exist."""

    def test_reports(self):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1))
        for words in (("push", file, "127.0.0.1:9"), ("pull", "127.0.0.1:9", "m", self.path("out")),
                      ("pull", "127.0.0.1:9", "--list"), ("bench", "bw", "127.0.0.1:9")):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end(*words, "--json", self.path("no/x.json")), 1, "not found: .*no/x.json")
                self.assert_fails(self.run_to_end(*words, "--json", str(self.folder)), 1, "invalid argument: .*directory")
        self.assertEqual(os.listdir(self.folder), ["m.safetensors"])

    def test_ready_file(self):
        result = self.run_to_end("serve", "--listen", "127.0.0.1:0", "--ready-file", self.path("no/ready"))
        self.assert_fails(result, 1, "not found: .*no/ready")
        self.assertNotIn("listening", result[1])

    def test_files_to_pull_into(self):
        os.mkfifo(self.path("pipe"))
        for out, pattern in ((str(self.folder), "is a directory, not a regular file"), (self.path("no/out"), "not found: .*; make its folder, or name another file"),
                             (self.path("pipe"), "pipe.*not a regular file"), ("/dev/null", "not a regular file")):
            with self.subTest(out=out):
                self.assert_fails(self.run_to_end("pull", "127.0.0.1:9", "m", out), 1, pattern)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))


class Addresses(Case):
    def file(self):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1))
        return file

    def test_nobody_listens(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))  # bound, not listening: nobody else can take it
            address = f"127.0.0.1:{holder.getsockname()[1]}"
            self.assert_fails(self.run_to_end("push", self.file(), address, "--connect-timeout", "3000"), 1,
                              f"cannot reach {address}", "; start `fairlead serve` there, or give the port at which it listens")
            for words, server in ((["bench", "bw", address], "bench --server"), (["gain", address], "gain --server"),
                                  (["devices", "--peer", address], "serve")):
                self.assert_fails(self.run_to_end(*words), 1, f"cannot reach {address}.*; start `fairlead {server}` there")

    def test_a_port_of_another_kind(self):
        server = self.serve(metrics=True)
        metrics = server.metrics_url.split("/")[2]
        self.assert_fails(self.run_to_end("push", self.file(), metrics), 1,
                          "give the address at which a `fairlead serve` listens, which is not that of its --metrics")
        self.assert_fails(self.run_to_end("status", server.listen), 1, f"{server.listen}.*; give the address of --metrics")

    def test_no_such_host(self):
        self.assert_fails(self.run_to_end("push", self.file(), "no-such-host.invalid:7471", "--connect-timeout", "5000"), 1,
                          "no-such-host.invalid", "; check the name, or give an address in numbers")

    def test_port_in_use(self):
        server = self.serve()
        self.assert_fails(self.run_to_end("serve", "--listen", server.listen), 1, server.listen.split(":")[1], "in use")

    def test_metrics_port_in_use(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            result = self.run_to_end("serve", "--listen", "127.0.0.1:0", "--metrics", f"127.0.0.1:{port}")
            self.assert_fails(result, 1, f"metrics on 127.0.0.1:{port}")


class BadPeers(Case):
    def assert_serves(self, server):
        file = self.path("good.safetensors")
        write_safetensors(file, random_model(1))
        code, output, report = self.push(server, file)
        self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
        self.assertEqual(report["verified"], report["tensors"])

    def test_garbage_and_silence_on_the_port(self):
        server = self.serve(metrics=True)
        host, port = server.listen.split(":")
        silent = socket.create_connection((host, int(port)))
        for bytes_ in (b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 4096, struct.pack(">I", 2**31) + b"x", b"\x00" * 64, b""):
            with socket.create_connection((host, int(port))) as client:
                try:
                    client.sendall(bytes_)
                except OSError:
                    pass  # it may close before it has read everything
        self.assert_serves(server)
        self.assertEqual(self.metric(server, "fairlead_handshakes_refused_total"), 5)
        silent.close()
        self.assert_serves(server)

    def test_model_larger_than_the_server_takes(self):
        server = self.serve("--max-bytes", "4M")
        file = self.path("large.safetensors")
        write_safetensors(file, random_model(8))
        code, output, _ = self.push(server, file)
        self.assert_fails((code, output), 1, "resource exhausted", "4.2 MB", "--max-bytes")
        self.assert_serves(server)

    def test_pull_of_a_model_that_is_not_there(self):
        server = self.serve()
        out = self.path("out.safetensors")
        self.assert_fails(self.run_to_end("pull", server.listen, "nothing", out), 1, "no model 'nothing'")
        self.assertFalse(os.path.exists(out))
        self.assert_serves(server)

    def test_pull_into_a_folder_that_is_not_there(self):
        server = self.serve()
        self.assert_serves(server)
        self.assert_fails(self.run_to_end("pull", server.listen, "good", self.path("no/out.safetensors")), 1, "no/out")

    def test_pull_never_replaces_what_is_not_a_file(self):
        server = self.serve()
        self.assert_serves(server)
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.assert_fails(self.run_to_end("pull", server.listen, "good", pipe), 1, "pipe.*not a regular file")
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))

    def test_bench_client_against_a_model_server(self):
        server = self.serve()
        code, output = self.run_to_end("bench", "bw", server.listen, "--size", "4K", "--iterations", "10")
        self.assert_fails((code, output), 1, "bench: error: .*not a `fairlead bench --server`")
        self.assert_serves(server)


if __name__ == "__main__":
    main()
