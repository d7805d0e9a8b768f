"""fairlead topo where no NIC leads anywhere: interfaces, and the softroce devices open on them, stand in for NICs.

The machine is a network namespace with two links of the test's own; where there can be none, it is skipped.
"""

import json
import pathlib
import subprocess
import sys

from harness import PATIENCE, PROGRAM, Case, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/lib"))
from namespaces import Host, enter, join, run  # noqa: E402

ADDRESSES = {"fl-rail0": "10.98.0.1", "fl-rail1": "10.98.1.1"}


class TopoOfInterfaces(Case):
    def setUp(self):
        super().setUp()
        self.other = Host()
        self.addCleanup(self.other.stop)
        run("ip", "link", "set", "lo", "up")
        for number, (name, address) in enumerate(ADDRESSES.items()):
            self.other.link(name, f"fl-far{number}")
            self.addCleanup(subprocess.run, ["ip", "link", "delete", name], capture_output=True, check=False)
            run("ip", "link", "set", f"fl-far{number}", "up", at=self.other.at)
            join(address, name)

    def topo(self, *words):
        done = subprocess.run([PROGRAM, "topo", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def test_two_rails_without_nics(self):
        tree, plan = self.topo(), self.topo("--plan")
        for name in ADDRESSES:
            self.assertRegex(tree, rf"(?m)^ +NIC {name}  link .* not on PCI$")
            self.assertRegex(plan, rf"(?m)^  {name} +~?[0-9.]+ GB/s +[0-9]+ %")
        self.assertRegex(tree, r"(?m)^No address of this machine is a NIC's .* over fl-rail0, fl-rail1, as if")
        document = json.loads(self.topo("--json"))
        found = [device["name"] for device in document["machine"]["devices"] if device["name"] in ADDRESSES]
        self.assertEqual(found, list(ADDRESSES))
        self.assertNotIn("fl-rail0", self.topo("--synthetic", "package:1 [numa] core:2 pu:1"))

    def test_softroce_devices_are_named(self):
        self.serve("--transport", "verbs:soft0", "--soft-address", ADDRESSES["fl-rail1"])
        done = subprocess.run([PROGRAM, "topo"], capture_output=True, text=True, timeout=PATIENCE, check=True)
        self.assertRegex(done.stdout, r"(?m)^ +NIC fl-rail1 \(soft0\)  ")
        self.assertRegex(done.stdout, r"(?m)^ +NIC fl-rail0  ")


if __name__ == "__main__":
    enter()
    main()
