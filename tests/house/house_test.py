#!/usr/bin/env python3
"""The house is as drawn, and the checker finds what would not be."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEBT = "scripts/lib/house_debt.txt"
CLASS = "class Large{kind} {{\n public:\n  explicit Large();\n{members}\n private:\n  void hidden();\n}};\n"


def members(count):
    return "\n".join(f"  [[nodiscard]] std::vector<int> member_{i}(int a) const noexcept {{ return f(a); }}" for i in range(count))


class House(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write(DEBT, "# nothing\n")

    def write(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, root=None):
        done = subprocess.run([sys.executable, ROOT / "scripts/house", "--root", root or self.folder.name], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_is_as_drawn(self):
        status, words = self.check(ROOT)
        self.assertEqual(status, 0, words)

    def test_an_upward_include_is_found(self):
        self.write("base/a.cc", '#include "fairlead/log.h"\n#include "base/b.h"\n')
        self.assertEqual(self.check()[0], 0)
        self.write("base/a.cc", '#include "memreg/pool.h"\n')
        self.assertEqual(self.check(), (1, "house: base/a.cc: includes memreg/pool.h\n"))

    def test_a_wing_sees_no_other_that_it_does_not_stand_on(self):
        self.write("datapath/session/a.h", '#include "datapath/lane/lane.h"\n#include "tcp_fallback/path.h"\n')
        self.assertEqual(self.check(), (1, "house: datapath/session/a.h: includes tcp_fallback/path.h\n"))
        self.write("datapath/session/a.h", '#include "datapath/engine/engine_impl.h"\n')
        self.assertEqual(self.check(), (1, "house: datapath/session/a.h: includes datapath/engine/engine_impl.h\n"))
        self.write("datapath/session/a.h", "")
        self.write("datapath/engine/factory.cc", '#include "verbs/transport/factory.h"\n')
        self.assertEqual(self.check()[0], 0)

    def test_a_file_outside_of_the_rooms_is_found(self):
        self.write("datapath/loose.h", "")
        self.assertEqual(self.check(), (1, "house: datapath/loose.h: in no room\n"))

    def test_a_known_debt_passes_until_it_is_mended(self):
        self.write(DEBT, "base/a.cc: includes memreg/pool.h\n")
        self.write("base/a.cc", '#include "memreg/pool.h"\n')
        self.assertEqual(self.check()[0], 0)
        self.write("base/a.cc", "")
        self.assertEqual(self.check()[0], 1)

    def test_sizes_have_limits(self):
        self.write("verbs/cm/a.h", "\n" * 400 + CLASS.format(kind="", members=members(25)))
        self.assertEqual(self.check(), (1, "house: verbs/cm/a.h: longer than 400 lines\n"))
        self.write("verbs/cm/a.h", CLASS.format(kind=" final : public Base<int>", members=members(26)))
        self.assertEqual(self.check(), (1, "house: verbs/cm/a.h: class Large has more than 25 public member functions\n"))
        for number in range(41):
            self.write(f"docs/{number}.md", "")
        self.assertIn("house: docs: more than 40 files\n", self.check()[1])

    def test_a_friend_is_found(self):
        self.write("verbs/cm/a.h", "class A {\n  friend bool operator==(const A&, const A&) = default;\n  friend class B;\n};\n")
        self.assertEqual(self.check(), (1, "house: verbs/cm/a.h: friend class B\n"))


if __name__ == "__main__":
    unittest.main()
