"""What the program is for: a model crosses, every tensor is checked, and it comes back the same."""

import json
import os
import pathlib
import signal

from harness import PROGRAM, Case, main, random_model, read_safetensors, write_raw, write_safetensors

PATHS = {
    "tcp": ["--transport", "tcp"],
    "shm": ["--transport", "shm"],
    "verbs": ["--transport", "verbs:soft0"],
    "pvrdma": ["--transport", "verbs:soft0", "--soft-profile", "pvrdma"],
}


class Keys(Case):
    """Who connects shows a key, or is sent away."""

    def keys(self, name, *principals):
        file = self.path(name)
        for principal in principals:
            code, line = self.run_to_end("key", principal)
            self.assertEqual(code, 0, line)
            self.assertRegex(line, rf"^{principal} [0-9a-f]{{64}}$")
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w", encoding="ascii") as out:
                out.write(line + "\n")
        return file

    def test_only_who_has_one_may_push_and_pull(self):
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(2))
        keys, others = self.keys("keys", "trainer", "store"), self.keys("others", "trainer")
        server = self.serve("--keys", keys)
        code, output, _ = self.push(server, file, "--keys", keys, "--principal", "trainer")
        self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
        copy = self.path("copy")
        code, output = self.run_to_end("pull", server.listen, "m", copy, "--keys", keys, "--principal", "trainer")
        self.assertEqual(code, 0, output)
        self.assertEqual(read_safetensors(copy), read_safetensors(file))
        listing = ["pull", server.listen, "--list"]
        self.assert_fails(self.run_to_end(*listing), 1, "takes no anonymous peers")
        self.assert_fails(self.run_to_end(*listing, "--keys", others, "--principal", "trainer"), 1,
                          "'trainer' did not show a key that is known here")
        self.assert_fails(self.run_to_end(*listing, "--keys", others, "--principal", "ghost"), 1, "has no line for 'ghost'")
        self.assert_fails(self.run_to_end(*listing, "--principal", "trainer"), 2, "there is no keys_file")
        os.chmod(others, 0o644)
        self.assert_fails(self.run_to_end(*listing, "--keys", others, "--principal", "trainer"), 1, "mode 0644.*chmod 600")
        self.assert_fails(self.run_to_end("key", "two words"), 2, "1 to 64 letters")
        self.assertEqual(server.end(), 0, server.output)

    def test_keys_are_read_again_on_sighup(self):
        keys, before = self.keys("keys", "trainer"), self.keys("before", "store")
        with open(keys, encoding="ascii") as file:
            trainer = file.read()
        server = self.serve("--keys", keys)

        def listing(file, principal):
            return self.run_to_end("pull", server.listen, "--list", "--keys", file, "--principal", principal)

        self.assert_fails(listing(before, "store"), 1, "'store' did not show a key that is known here")
        os.chmod(keys, 0o644)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("mode 0644.*still hold")
        os.chmod(keys, 0o600)
        self.assertEqual(listing(keys, "trainer")[0], 0)
        with open(before, encoding="ascii") as new, open(keys, "w", encoding="ascii") as file:
            file.write(new.read())
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("the keys were read again")
        self.assertEqual(listing(before, "store")[0], 0)
        with open(keys, "w", encoding="ascii") as file:
            file.write(trainer)
        self.assert_fails(listing(keys, "trainer"), 1, "'trainer' did not show a key that is known here")
        self.assertEqual(server.end(), 0, server.output)

    def test_a_model_is_its_principals_unless_models_are_shared(self):
        files = {}
        for principal in "trainer", "store":
            files[principal] = self.path(f"{principal}.safetensors")
            write_safetensors(files[principal], random_model(2))
        keys = self.keys("keys", "trainer", "store")

        def who(principal):
            return ["--keys", keys, "--principal", principal]

        def pull(server, principal, name):
            copy = self.path(f"copy of {name} by {principal}")
            return *self.run_to_end("pull", server.listen, name, copy, *who(principal)), copy

        server = self.serve("--keys", keys)
        code, output, _ = self.push(server, files["trainer"], "--name", "theirs", *who("trainer"))
        self.assertEqual(code, 0, output)
        code, output = self.run_to_end("pull", server.listen, "--list", *who("store"))
        self.assertEqual((code, "no models" in output), (0, True), output)
        self.assert_fails(pull(server, "store", "theirs")[:2], 1, "no model 'theirs' here")
        for principal, file in files.items():  # one name, two models
            code, output, _ = self.push(server, file, "--name", "both", *who(principal))
            self.assertEqual(code, 0, output)
        for principal, file in files.items():
            code, output, copy = pull(server, principal, "both")
            self.assertEqual(code, 0, output)
            self.assertEqual(read_safetensors(copy), read_safetensors(file))
        self.assertEqual(server.end(), 0, server.output)

        server = self.serve("--keys", keys, "--shared")
        code, output, _ = self.push(server, files["trainer"], "--name", "ours", *who("trainer"))
        self.assertEqual(code, 0, output)
        code, output, copy = pull(server, "store", "ours")
        self.assertEqual(code, 0, output)
        self.assertEqual(read_safetensors(copy), read_safetensors(files["trainer"]))
        self.assertEqual(server.end(), 0, server.output)


class RoundTrip(Case):
    def test_push_then_pull(self):
        model, metadata = random_model(24), {"format": "pt", "note": 'quotes " and \n lines'}
        file = self.path("model.safetensors")
        write_safetensors(file, model, metadata)
        for name, flags in PATHS.items():
            with self.subTest(path=name):
                server = self.serve(*flags, "--check", "arrival")
                code, output, report = self.push(server, file, *flags)
                self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
                self.assertEqual(report["schema"], "fairlead.push/1")
                self.assertEqual(report["transport"], flags[1])
                self.assertEqual((report["tensors"], report["verified"]), (len(model), len(model)))
                self.assertEqual(report["bytes"], sum(len(t["data"]) for t in model.values()))
                self.assertGreater(report["bytes_per_second"], 0)
                self.assertGreater(report["cpu_seconds_per_gb"]["initiator"], 0)
                self.assertGreater(report["cpu_seconds_per_gb"]["target"], 0)
                self.assertEqual(report["path_changes"], [])
                self.assertIn(f"{len(model)} tensors verified, 0 failed", server.output)

                code, output = self.run_to_end("pull", server.listen, "--list", *flags)
                self.assertEqual(code, 0, output)
                self.assertRegex(output, rf"model  {len(model)} tensors")
                copy = self.path(f"copy-{name}.safetensors")
                code, output = self.run_to_end("pull", server.listen, "model", copy, *flags, "--json", "-")
                self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
                self.assertEqual(read_safetensors(copy), (model, metadata))
                self.assertEqual([f for f in os.listdir(self.folder) if "partial" in f], [])
                self.assertEqual(server.end(), 0, server.output)

    def test_what_was_pushed_comes_back_byte_for_byte(self):
        # As the format's own writer lays it out, with dtypes that are not ours and more metadata than most have.
        header = {"__metadata__": {"format": "pt", "tags": '{"a": "b"} ' * 30_000}}
        data = random_model(1)["layer0.weight"]["data"][:6000]
        for i, dtype in enumerate(("C64", "F4", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F32")):
            header[dtype] = {"dtype": dtype, "shape": [250], "data_offsets": [i * 1000, (i + 1) * 1000]}
        text = json.dumps(header, separators=(",", ":")).encode()
        file, copy = self.path("m.safetensors"), self.path("copy")
        write_raw(file, text + b" " * (-len(text) % 8), data)
        server = self.serve()
        code, output, report = self.push(server, file)
        self.assertEqual(code, 0, output)
        self.assertEqual(report["verified"], 6)
        code, output = self.run_to_end("pull", server.listen, "m", copy)
        self.assertEqual(code, 0, output)
        self.assertEqual(pathlib.Path(copy).read_bytes(), pathlib.Path(file).read_bytes())

    def test_a_model_of_several_files(self):
        folder = self.folder / "llama"
        folder.mkdir()
        weight_map = {}
        for i in (1, 2, 3):
            shard = f"model-0000{i}-of-00003.safetensors"
            tensors = {f"{i}.{name}": t for name, t in random_model(2, seed=i).items()}
            write_safetensors(folder / shard, tensors, {"format": "pt"})
            weight_map |= {name: shard for name in tensors}
        index = folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=2))
        server = self.serve()
        for what, name in ((folder, "llama"), (index, "model")):
            code, output, report = self.push(server, what)
            self.assertEqual(code, 0, output + "\n--- server:\n" + server.output)
            self.assertEqual((report["files"], report["tensors"]), (4, len(weight_map) + 1))
            copy = self.folder / f"copy-{name}"
            code, output = self.run_to_end("pull", server.listen, name, copy)
            self.assertEqual(code, 0, output)
            self.assertEqual(sorted(os.listdir(copy)), sorted(os.listdir(folder)))
            self.assertEqual((copy / index.name).read_bytes(), index.read_bytes())
            for shard in set(weight_map.values()):
                self.assertEqual(read_safetensors(copy / shard), read_safetensors(folder / shard))
            self.assertEqual([f for f in os.listdir(self.folder) if "partial" in f], [])
            self.assert_fails(self.run_to_end("pull", server.listen, name, copy), 1, "copy-.* is a directory")

    def test_a_link_stays(self):
        server = self.serve()
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1))
        self.assertEqual(self.push(server, file)[0], 0)
        os.symlink("target", self.path("link"))
        code, output = self.run_to_end("pull", server.listen, "m", self.path("link"))
        self.assertEqual(code, 0, output)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertEqual(read_safetensors(self.path("target"))[0], random_model(1))

    def test_without_checksums(self):
        server = self.serve(metrics=True)
        file, copy = self.path("m.safetensors"), self.path("copy")
        write_safetensors(file, random_model(2))
        code, output, report = self.push(server, file, "--checksum", "off")
        self.assertEqual(code, 0, output)
        self.assertEqual(report["checksum"], "off")
        self.assertGreaterEqual(report["total_seconds"], report["seconds"])
        self.assertIn("received without checksums", server.output)
        self.assertEqual(self.metric(server, 'fairlead_serve_pushes_total{result="unchecked"}'), 1)
        self.assertEqual(self.metric(server, 'fairlead_serve_pushes_total{result="verified"}'), 0)
        tensors = len(random_model(2))
        for flags, unchecked in (((), tensors - 1), (("--checksum", "off"), tensors)):  # the one without bytes is as it should be
            pulled = self.path("pulled.json")
            code, output = self.run_to_end("pull", server.listen, "m", copy, "--json", pulled, *flags)
            self.assertEqual(code, 0, output)
            self.assertIn(f"{unchecked} of {tensors} tensors received without checksums", output)
            report = json.loads(pathlib.Path(pulled).read_text(encoding="utf-8"))
            self.assertEqual((report["verified"], report["unchecked"]), (tensors - unchecked, unchecked))
        self.assertEqual(read_safetensors(copy)[0], random_model(2))

    def test_a_file_that_is_replaced_meanwhile_goes_as_it_was_opened(self):
        server = self.serve()
        file, other, copy = self.path("m.safetensors"), self.path("other"), self.path("copy")
        write_safetensors(file, random_model(2, seed=1))
        write_safetensors(other, random_model(2, seed=2))
        server.process.send_signal(signal.SIGSTOP)
        client = self.start("push", file, server.listen, "--name", "m")
        try:
            fds = pathlib.Path(f"/proc/{client.process.pid}/fd")
            while not any(os.path.realpath(fd) == os.path.realpath(file) for fd in fds.iterdir()):
                self.assertIsNone(client.process.poll(), client.output)
            os.replace(other, file)
        finally:
            server.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(), 0, client.output)
        code, output = self.run_to_end("pull", server.listen, "m", copy)
        self.assertEqual(code, 0, output)
        self.assertEqual(read_safetensors(copy)[0], random_model(2, seed=1))

    def test_json_on_standard_output_is_nothing_but_json(self):
        server = self.serve()
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(1))
        process = self.start("push", file, server.listen, "--json", "/dev/stdout")
        self.assertEqual(process.wait(), 0, process.output)
        report = self.path("report.json")
        os.system(f"'{PROGRAM}' push '{file}' {server.listen} --json - >'{report}' 2>/dev/null")
        self.assertEqual(json.loads(pathlib.Path(report).read_text())["verified"], len(random_model(1)))

    def test_a_model_without_tensors(self):
        server = self.serve()
        file = self.path("empty.safetensors")
        write_safetensors(file, {})
        code, output, report = self.push(server, file)
        self.assertEqual((code, report and report["tensors"]), (0, 0), output)
        code, output = self.run_to_end("pull", server.listen, "empty", self.path("copy.safetensors"))
        self.assertEqual(code, 0, output)
        self.assertEqual(read_safetensors(self.path("copy.safetensors"))[0], {})


class Server(Case):
    def test_many_clients_at_once_and_metrics(self):
        server = self.serve(metrics=True)
        clients = []
        for i in range(4):
            file = self.path(f"model{i}.safetensors")
            write_safetensors(file, random_model(8, seed=i))
            flags = PATHS["tcp" if i % 2 else "verbs"]
            clients.append(self.start("push", file, server.listen, *flags))
        for client in clients:
            self.assertEqual(client.wait(), 0, client.output + "\n--- server:\n" + server.output)
        self.assertEqual(self.metric(server, 'fairlead_serve_pushes_total{result="verified"}'), 4)
        self.assertEqual(self.metric(server, 'fairlead_serve_tensors_total{result="failed"}'), 0)
        self.assertEqual(self.metric(server, "fairlead_serve_models"), 4)
        self.assertEqual(self.metric(server, "fairlead_serve_push_seconds_count"), 4)
        self.assertEqual(self.metric(server, 'fairlead_serve_push_seconds_bucket{le="+Inf"}'), 4)
        pushed = self.metric(server, "fairlead_serve_received_bytes_total")
        over_tcp = self.metric(server, 'fairlead_transport_received_bytes_total{lane="0",transport="tcp"}')
        self.assertTrue(pushed / 4 < over_tcp < pushed, (over_tcp, pushed))
        for i in range(4):
            copy = self.path(f"copy{i}.safetensors")
            code, output = self.run_to_end("pull", server.listen, f"model{i}", copy)
            self.assertEqual(code, 0, output)
            self.assertEqual(read_safetensors(copy)[0], random_model(8, seed=i))
        self.run_to_end("pull", server.listen, "nobody", self.path("none"))
        self.assertEqual(self.metric(server, 'fairlead_serve_pulls_total{result="completed"}'), 4)
        self.assertEqual(self.metric(server, 'fairlead_serve_pulls_total{result="refused"}'), 1)
        self.assertEqual(self.metric(server, "fairlead_serve_pull_seconds_count"), 4)

    def test_the_same_name_again_replaces_and_old_models_make_room(self):
        server = self.serve("--max-bytes", "20M", metrics=True)
        file = self.path("a.safetensors")
        for seed in (1, 2):
            write_safetensors(file, random_model(6, seed))
            self.assertEqual(self.push(server, file)[0], 0, server.output)
        self.assertEqual(self.metric(server, "fairlead_serve_models"), 1)
        self.run_to_end("pull", server.listen, "a", self.path("copy.safetensors"))
        self.assertEqual(read_safetensors(self.path("copy.safetensors"))[0], random_model(6, 2))
        for name in ("b", "c", "d"):
            write_safetensors(self.path(f"{name}.safetensors"), random_model(6))
            self.assertEqual(self.push(server, self.path(f"{name}.safetensors"))[0], 0, server.output)
        _, output = self.run_to_end("pull", server.listen, "--list")
        self.assertNotRegex(output, "(?m)^a  ")
        self.assertRegex(output, "(?m)^d  ")
        self.assertEqual(self.metric(server, "fairlead_serve_models_evicted_total"), 1)
        self.assertRegex(server.output, "model a of .* dropped: it made room for d")
        self.assertLessEqual(self.metric(server, "fairlead_serve_model_bytes"), 20 * 2**20)
        # The first a's memory served another, the second's waits.
        self.assertGreaterEqual(self.metric(server, "fairlead_serve_spare_used_bytes_total"), 6_000_000)
        self.assertGreaterEqual(self.metric(server, "fairlead_serve_spare_bytes"), 6_000_000)
        self.run_to_end("pull", server.listen, "b", self.path("b-copy.safetensors"))
        self.assertEqual(read_safetensors(self.path("b-copy.safetensors"))[0], random_model(6))

    def test_no_memory_is_spare_where_none_is_wanted(self):
        server = self.serve("--spare", "0", metrics=True)
        file = self.path("a.safetensors")
        write_safetensors(file, random_model(2))
        for _ in range(3):
            self.assertEqual(self.push(server, file)[0], 0, server.output)
        self.assertEqual(self.metric(server, "fairlead_serve_spare_bytes"), 0)
        self.assertEqual(self.metric(server, "fairlead_serve_spare_used_bytes_total"), 0)

    def test_a_pull_that_is_ended_leaves_nothing(self):
        server = self.serve()
        file = self.path("m.safetensors")
        write_safetensors(file, random_model(48))
        self.assertEqual(self.push(server, file, "--transport", "tcp")[0], 0)
        for ending in (signal.SIGINT, signal.SIGTERM):
            slow = ["--transport", "verbs:soft0", "--packet-io", "udp,drop=0.2"]
            client = self.start("pull", server.listen, "m", self.path("copy"), *slow)
            client.wait_for("^[235][0-9] % of")
            self.assertEqual(len(list(self.folder.glob("copy.*.partial"))), 1)
            client.process.send_signal(ending)
            self.assertEqual(client.wait(), -ending, client.output)
            self.assertEqual(list(self.folder.glob("copy*")), [])

    def test_a_list_for_programs(self):
        server = self.serve()
        write_safetensors(self.path("m.safetensors"), random_model(1))
        self.assertEqual(self.push(server, self.path("m.safetensors"))[0], 0)
        report = self.path("list.json")
        code, output = self.run_to_end("pull", server.listen, "--list", "--json", report)
        self.assertEqual(code, 0, output)
        size = sum(len(t["data"]) for t in random_model(1).values())
        self.assertEqual(json.loads(pathlib.Path(report).read_text()), {
            "schema": "fairlead.models/1", "models": [{"name": "m", "tensors": len(random_model(1)), "bytes": size}]})

    def test_the_ready_file_goes_with_the_server(self):
        server = self.serve()
        self.assertEqual(len(list(self.folder.glob("ready-*"))), 1)
        self.assertEqual(server.end(), 0)
        self.assertEqual(list(self.folder.glob("ready-*")), [])

    def test_a_client_is_greeted_before_anything_else_is_said_of_it(self):
        write_safetensors(self.path("m.safetensors"), random_model(1))
        for transport in ("tcp", "verbs:soft0") * 3:
            server = self.serve("--once")
            self.assertEqual(self.push(server, self.path("m.safetensors"), "--transport", transport)[0], 0)
            self.assertEqual(server.wait(), 0)
            said = [line for line in server.lines if "listening" not in line and not line.endswith(" ending")]
            self.assertRegex(said[0], " connected(: |$)")
            self.assertEqual(sum(f": {transport} (" in line for line in said), 1, said)

    def test_without_a_host_it_is_for_this_host_alone(self):
        server = self.start("serve", "--listen", ":0")
        server.wait_for("for this host alone")
        self.assertRegex(server.lines[0], r" info: listening on 127\.0\.0\.1:\d+$")
        for named in ("0.0.0.0:0", "[::1]:0"):
            told = self.start("serve", "--listen", named)
            told.wait_for(" listening on ")
            self.run_to_end("pull", told.lines[0].split()[-1].replace("0.0.0.0", "127.0.0.1"), "--list")
            self.assertNotIn("this host alone", told.output)

    def test_once(self):
        server = self.serve("--once")
        write_safetensors(self.path("m.safetensors"), random_model(1))
        self.assertEqual(self.push(server, self.path("m.safetensors"))[0], 0)
        self.assertEqual(server.wait(), 0, server.output)

    def test_a_server_of_devices_is_told_from_one_of_models(self):
        server = self.serve("--gpu", "host")
        self.assert_fails(self.run_to_end("pull", server.listen, "--list"), 1, "need a `fairlead serve` without --gpu")

    def test_devices_explains(self):
        server = self.serve()
        code, output = self.run_to_end("devices", "--peer", server.listen)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, "(?m)^verbs:soft0 +yes")
        self.assertRegex(output, "(?m)^tcp +yes")
        self.assertIn(server.listen, output)


if __name__ == "__main__":
    main()
