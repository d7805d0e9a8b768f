"""Which way is taken to a server, why not the others, and what may not be taken."""

import json

from harness import Case, main


class Explain(Case):
    def explain(self, server, *flags):
        report = self.path("report.json")
        code, output = self.run_to_end("explain", server.listen, "--json", report, *flags)
        if code != 0:
            return code, output, {}
        with open(report, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual(found["schema"], "fairlead.explain/1")
        for way in found["candidates"]:
            self.assertIn(way["transport"], output)
            self.assertEqual(way["seconds"] > 0, way["verdict"] in ("chosen", "works"))
        return code, output, {way["transport"]: way for way in found["candidates"]}

    def test_each_way_is_tried(self):
        server = self.serve()
        code, output, ways = self.explain(server)
        self.assertEqual(code, 0, output)
        self.assertEqual(ways["shm"]["verdict"], "chosen")
        self.assertIn("one copy, by who receives", ways["shm"]["reason"])
        self.assertEqual((ways["tcp"]["verdict"], ways["verbs:soft0"]["verdict"]), ("works", "works"))
        self.assertIn("ranks below tcp", ways["verbs:soft0"]["reason"])
        code, output, ways = self.explain(server, "--transport", "verbs")
        self.assertEqual(code, 0, output)
        self.assertEqual((ways["verbs:soft0"]["verdict"], ways["tcp"]["verdict"]), ("chosen", "works"))

    def test_what_each_way_carries_is_measured(self):
        server = self.serve()
        code, output, ways = self.explain(server, "--choice", "measured")
        self.assertEqual(code, 0, output)
        for name in ("tcp", "verbs:soft0"):
            self.assertRegex(ways[name]["measured"], r"^[0-9.]+ [um]s, [0-9.e+]+ [MG]B/s$")
            self.assertIn("measured " + ways[name]["measured"], output)
        self.assertEqual(self.explain(server)[2]["tcp"]["measured"], "", "nobody asked")

    def test_several_places_of_a_server(self):
        server = self.serve()
        gone = self.serve()
        gone.end()
        server.listen = f"{gone.listen},{server.listen}"
        code, output, ways = self.explain(server)
        self.assertEqual((code, ways["shm"]["verdict"]), (0, "chosen"), output)
        self.assert_fails(self.run_to_end("explain", server.listen + ",x"), 2, "'x' is not an address: no port")

    def test_what_the_server_has_not_fails_with_its_reason(self):
        server = self.serve("--transport", "tcp")
        code, output, ways = self.explain(server)
        self.assertEqual(code, 0, output)
        self.assertEqual(ways["verbs:soft0"]["verdict"], "fails")
        self.assertIn("the peer offers no verbs", ways["verbs:soft0"]["reason"])

    def test_a_policy_leaves_out(self):
        server = self.serve()
        code, output, ways = self.explain(server, "--forbid", "shm,tcp")
        self.assertEqual(code, 0, output)
        self.assertEqual(ways["verbs:soft0"]["verdict"], "chosen")
        self.assertEqual((ways["tcp"]["verdict"], ways["tcp"]["reason"]), ("unusable", "forbidden here (forbid: tcp)"))
        code, output, ways = self.explain(server, "--require", "software")
        self.assertEqual((code, ways["verbs:soft0"]["verdict"]), (0, "chosen"), output)
        self.assert_fails(self.explain(server, "--require", "hardware")[:2], 2, "no transport is left to use: ",
                          r"shm is not what is required here \(require: hardware\)", "tcp is not", "verbs:soft0 is not",
                          "`fairlead devices` shows all that this host has")
        self.assert_fails(self.explain(server, "--forbid", "udp")[:2], 2, "forbid is 'udp'; legal: shm, tcp, verbs")
        # Without memory of this host the network is looked at as if the server were elsewhere.
        self.assertEqual(self.explain(server, "--forbid", "shm")[2]["tcp"]["verdict"], "chosen")
        # The server's policy is the server's: it opens nothing else.
        server = self.serve("--forbid", "verbs")
        self.assert_fails(self.explain(server, "--require", "verbs")[:2], 1, "the peer offers no verbs")

    def test_what_would_work_is_said_where_nothing_is_in_common(self):
        server = self.serve("--forbid", "shm,tcp")
        self.assert_fails(self.run_to_end("pull", server.listen, "--list", "--forbid", "shm"), 1, "no transport in common",
                          "forbid is 'shm'", "verbs:soft0 would work: --transport verbs:soft0")
        self.assertEqual(self.run_to_end("pull", server.listen, "--list", "--transport", "verbs:soft0")[0], 0)

    def test_devices_shows_what_a_policy_leaves_out(self):
        for policy, why in (({"--forbid": "tcp"}, r"forbidden here \(forbid: tcp\)"),
                            ({"--forbid": "shm", "--require": "shm,software"}, r"not what is required here \(require: shm,software\)")):
            with self.subTest(policy):
                code, output = self.run_to_end("devices", *(word for pair in policy.items() for word in pair))
                self.assertEqual(code, 0, output)
                self.assertRegex(output, rf"(?m)^tcp +no +all addresses +{why}; kernel sockets$")
                self.assertRegex(output, r"(?m)^verbs:soft0 +yes ")

    def test_who_is_not_there_is_said_so(self):
        server = self.serve()
        server.end()
        self.assert_fails(self.explain(server)[:2], 1, "cannot reach .*Connection refused")


if __name__ == "__main__":
    main()
