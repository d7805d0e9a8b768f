"""fairlead doctor as users and scripts run it: this machine, a copy of another's files, exit codes, JSON, wrong words."""

import json
import pathlib
import re
import subprocess

from harness import PATIENCE, PROGRAM, Case, main

VERDICTS = {"ok", "advice", "problem", "not here"}


class Doctor(Case):
    def doctor(self, *words):
        done = subprocess.run([PROGRAM, "doctor", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.stderr, "", words)
        return done.returncode, done.stdout

    def machine(self, **files):
        """A root with these files; `__` in a name stands for a slash."""
        root = self.folder / "machine"
        for name, text in {"proc__stat": "cpu 1 1 1 97 0 0 0 0 0 0\n", **files}.items():
            path = root / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    def test_this_machine(self):
        status, text = self.doctor()
        document = json.loads(self.doctor("--json")[1])
        self.assertEqual(status, 1 if re.search(r"(?m)^problem ", text) else 0, text)
        self.assertEqual([line["name"] for line in document["checks"]],
                         re.findall(r"(?m)^(?:ok|advice|problem|not here) +([a-z0-9-]+) ", text))
        for check in document["checks"]:
            self.assertIn(check["verdict"], VERDICTS)
            self.assertTrue(check["seen"] and check["why"], check)
            self.assertEqual(bool(check["commands"]), check["verdict"] in ("advice", "problem"), check)
        self.assertEqual(set(document["counts"]), VERDICTS)
        self.assertEqual(sum(document["counts"].values()), len(document["checks"]))

    def test_a_copy_of_another_machine(self):
        root = self.machine()
        status, text = self.doctor("--root", root)
        self.assertEqual(status, 0, text)
        self.assertIn("0 problems", text)
        port = {"sys__class__infiniband__mlx5_0__ports__1__state": "1: DOWN\n"}
        status, text = self.doctor("--root", self.machine(**port), "--only", "rdma-ports")
        self.assertEqual(status, 1, text)
        self.assertIn("problem   rdma-ports              down: mlx5_0 port 1", text)
        self.assertIn("1 check: 0 ok, 0 advice, 1 problem, 0 not here", text)
        status, document = self.doctor("--root", root, "--only", "rdma-ports", "--json")
        self.assertEqual((status, json.loads(document)["checks"][0]["verdict"]), (1, "problem"))

    def test_some_checks_in_the_order_of_the_table(self):
        text = self.doctor("--root", self.machine(), "--only", "mtu,memlock")[1]
        self.assertLess(text.index("memlock"), text.index("mtu"))
        self.assertIn("2 checks: ", text)

    def test_a_variable_of_other_commands_reports_says_nothing_to_a_switch(self):
        for words in (("doctor", "--only", "memlock", "--root", self.machine()), ("topo", "--synthetic", "pu:1")):
            code, output = self.run_to_end(*words, env={"FAIRLEAD_JSON": "report.json"})
            self.assertEqual(code, 0, output)
            self.assertFalse(output.startswith("{"), output)

    def test_wrong_words(self):
        self.assert_fails(self.run_to_end("doctor", "--only", "nonsense"), 2, "no check 'nonsense'; legal: huge-pages, ")
        self.assert_fails(self.run_to_end("doctor", "word"), 2, "word")
        self.assert_fails(self.run_to_end("doctor", "--root", pathlib.Path("/nonexistent")), 1, "there is no /nonexistent/proc")


if __name__ == "__main__":
    main()
