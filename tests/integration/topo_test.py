"""fairlead topo as users run it: this machine, machines of files and of descriptions, plans, JSON, drawings, and every
wrong way to ask."""

import json
import pathlib
import subprocess
import xml.dom.minidom

from harness import PATIENCE, PROGRAM, Case, main

MACHINES = pathlib.Path(__file__).resolve().parent.parent / "topology/machines"
P4D = MACHINES / "aws-p4d.24xl.xml"


class Topo(Case):
    def topo(self, *words):
        """Standard output of a run that must succeed and say nothing on standard error."""
        done = subprocess.run([PROGRAM, "topo", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def test_this_machine(self):
        tree = self.topo()
        self.assertRegex(tree, r"(?m)^  Sockets? [0-9]")
        self.assertRegex(tree, r"(?m)^    numa\d+  ")
        self.assertIn("peer", self.topo("--plan"))
        self.assertIn("numa0 -> nobody", self.topo("--explain", "numa0", "nobody"))
        document = json.loads(self.topo("--json"))
        self.assertTrue(document["machine"]["this_machine"])
        self.assertTrue(any(core["usable_pus"] for core in document["machine"]["cores"]))
        if len(document["machine"]["memories"]) == 1:
            self.assertEqual(self.topo("--plan").count("One NUMA node"), 1)

    def test_a_file(self):
        self.assertIn("GPU gpu7  0000:a0:1d.0", self.topo("--xml", P4D))
        plan = self.topo("--xml", P4D, "--plan")
        self.assertIn("gpu0 -> peer  ~6.25 GB/s", plan)
        explained = self.topo("--xml", P4D, "--explain", "gpu0", "hostb")
        self.assertIn("gpu0 -> hostb", explained)
        self.assertIn("ens32: it has no RDMA", explained)
        self.assertIn("host bridge 0000:10", explained)

    def test_each_remark_comes_once(self):
        # A machine with one node and a GPU: what is remarked of GPUs' plan is remarked of memory's, too.
        described = (MACHINES / "one-node-vm.xml").read_text(encoding="utf-8")
        gpu = ('<object type="PCIDev" gp_index="90" pci_busid="0000:00:04.0" pci_type="0302 [10de:20b0] [0000:0000] a1" '
               'pci_link_speed="31.507692"/>')
        end = described.rindex("</object>", 0, described.rindex("</object>"))  # of the host bridge
        one_node = self.path("one-node.xml")
        pathlib.Path(one_node).write_text(described[:end] + gpu + described[end:], encoding="utf-8")
        for words in (("--plan",), ("--explain", "gpu0", "b"), ("--explain", "gpu0", "b", "--plan")):
            with self.subTest(words=words):
                said = self.topo("--xml", one_node, *words)
                self.assertIn("gpu0 -> ", said)
                self.assertEqual(said.count("One NUMA node"), 1, said)
                self.assertEqual(said.count("Rates marked with ~"), 1, said)
                self.assertGreater(said.index("One NUMA node"), said.rindex(" -> "), "behind all that it is said of")

    def test_bandwidths_of_the_user(self):
        plan = self.topo("--xml", P4D, "--explain", "gpu0", "b", "--bandwidth", "socket=0.5,nic=2")
        self.assertIn("gpu0 -> b  4.50 GB/s", plan)
        self.assertNotIn("~", plan)

    def test_a_description(self):
        self.assertIn("2 sockets, 16 cores, 2 NUMA nodes", self.topo("--synthetic", "package:2 [numa] core:8 pu:2"))
        self.assertIn("No NIC", self.topo("--synthetic", "package:2 [numa] core:8 pu:2", "--plan"))

    def test_json_adds_up(self):
        document = json.loads(self.topo("--xml", P4D, "--json"))
        edges, nodes = document["graph"]["edges"], document["graph"]["nodes"]
        for edge in edges:
            self.assertLess(max(edge["from"], edge["to"]), len(nodes))
            self.assertIn(edge["forward"]["origin"], ("measured", "advertised", "assumed"))
        self.assertEqual(len(document["plans"][1]["placements"]), 8)
        for plan in document["plans"]:
            for placement in plan["placements"]:
                self.assertAlmostEqual(sum(nic["bytes_per_second"] for nic in placement["nics"]),
                                       placement["bytes_per_second"], delta=1e6)
                for nic in placement["nics"] + placement["passed_over"]:
                    self.assertTrue(nic["reason"])

    def test_every_machine_is_drawn(self):
        for machine in sorted(MACHINES.glob("*.xml")):
            with self.subTest(machine=machine.name):
                drawing = self.path("drawing.svg")
                self.topo("--xml", machine, "--svg", drawing)
                text = pathlib.Path(drawing).read_text(encoding="utf-8")
                self.assertEqual(xml.dom.minidom.parseString(text).documentElement.tagName, "svg")
                self.assertIn("prefers-color-scheme: dark", text)
        self.assertEqual(xml.dom.minidom.parseString(self.topo("--svg", "-")).documentElement.tagName, "svg")

    def test_wrong_words(self):
        for words, pattern in (
            (("--xml", "a", "--synthetic", "pu:1"), "give one"),
            (("--explain", "numa0"), "wants a PEER"),
            (("peer",), "one word too many"),
            (("--json", "--plan"), "goes without --plan"),
            (("--svg", "-", "--plan"), "standard output"),
            (("--bandwidth", "socket=-1"), "legal: NAME=GB/s"),
            (("--bandwidth", "socket"), "legal: NAME=GB/s"),
            (("--bandwidth", "socket=1e99"), "at most 1000000"),
            (("--frobnicate",), "there is no flag --frobnicate"),
        ):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("topo", *words), 2, pattern)

    def test_what_cannot_be_read_or_found(self):
        cut = self.path("cut.xml")
        pathlib.Path(cut).write_bytes(P4D.read_bytes()[:7000])
        for words, pattern in (
            (("--xml", "/nonexistent.xml"), "cannot read /nonexistent.xml: No such file"),
            (("--xml", "/"), "cannot read /"),
            (("--xml", cut), "cut off"),
            (("--synthetic", "hello"), "no synthetic topology"),
            (("--synthetic", "package:99999 core:99999"), "more than 65536"),
            (("--xml", P4D, "--explain", "gpu9", "b"), "no memory or GPU 'gpu9'; there is numa0, numa1, gpu0"),
            (("--xml", P4D, "--bandwidth", "mlx5_0=1"), "no 'mlx5_0'"),
            (("--xml", P4D, "--svg", "/nonexistent/x.svg"), "/nonexistent/x.svg"),
        ):
            with self.subTest(words=words):
                self.assert_fails(self.run_to_end("topo", *words), 1, pattern)


if __name__ == "__main__":
    main()
