"""Installs what was built into a folder of its own, and uses it as somebody else would.

usage: install_test.py BUILD SOURCE
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE, BUILD = pathlib.Path(sys.argv.pop()), pathlib.Path(sys.argv.pop())
HERE = pathlib.Path(__file__).resolve().parent
COMPILERS = [f"-DCMAKE_C_COMPILER={os.environ['CC']}", f"-DCMAKE_CXX_COMPILER={os.environ['CXX']}"]
STRICT = "-Wall -Wextra -Wconversion -Wpedantic -Werror"
# What a program that links it has to have anyway, ISA-L, libcrypto for keys, and hwloc for placement.
NEEDED = {"libisal", "libcrypto", "libhwloc", "libstdc++", "libm", "libgcc_s", "libc", "ld-linux-x86-64", "ld-linux-aarch64"}


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        (cls.library,) = cls.prefix.rglob("libfairlead.so.0")
        cls.outside = cls.folder / "outside"
        run("cmake", "-G", "Ninja", "-S", HERE / "outside", "-B", cls.outside, *COMPILERS, f"-DCMAKE_CXX_FLAGS={STRICT}",
            f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DEXAMPLES={SOURCE / 'examples'}")
        run("cmake", "--build", cls.outside)

    def test_an_outside_project_moves_a_buffer(self):
        said = run(self.outside / "outside")
        self.assertEqual(said.count(": ok"), 2, said)

    def test_the_examples_build_against_it_and_run(self):
        for example in ("write_one_buffer", "write_one_buffer_c", "answer_messages", "move_blocks"):
            with self.subTest(example), subprocess.Popen([self.outside / example], stdout=subprocess.PIPE,
                                                         text=True) as server:
                try:
                    address = re.search(r"[\w.:]+:\d+", server.stdout.readline())[0]
                    run(self.outside / example, address)
                    if example == "answer_messages":  # ends when it is told to, the others with their one peer
                        server.terminate()
                    self.assertEqual(server.wait(60), 0)
                finally:
                    server.kill()

    def test_a_remote_gpu_stack_builds_against_it_and_runs(self):
        stack = self.folder / "stack"
        run("cmake", "-G", "Ninja", "-S", SOURCE / "examples/remote_cuda", "-B", stack, *COMPILERS,
            f"-DCMAKE_CXX_FLAGS={STRICT}", f"-DCMAKE_C_FLAGS={STRICT}", f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", stack)
        ready = self.folder / "ready.json"
        with subprocess.Popen([self.prefix / "bin/fairlead", "serve", "--gpu", "host", "--listen", "127.0.0.1:0", "--ready-file", ready],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
            try:
                while not (ready.exists() and ready.read_text()):
                    self.assertIsNone(server.poll(), "the server ended")
                    time.sleep(0.02)
                where = json.loads(ready.read_text())["listen"]
                said = run(stack / "add_and_scale", env={**os.environ, "REMOTE_CUDA": where})
                self.assertEqual(said, "262144 numbers, right\n")
                server.terminate()
                self.assertEqual(server.wait(60), 0)
            finally:
                server.kill()

    def test_pkg_config_finds_it(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "fairlead", env=env)
        program = self.folder / "by_pkg_config"
        run(os.environ["CXX"], "-x", "c++", SOURCE / "examples/write_one_buffer.cc", "-o", program, *flags.split(),
            f"-Wl,-rpath,{self.library.parent}")
        self.assertIn(str(self.library.parent), run("ldd", program))
        version = run("pkg-config", "--modversion", "fairlead", env=env).strip()
        self.assertIn(f"Fairlead {version} over", run(self.outside / "outside"))
        self.assertEqual(self.library.resolve().name, f"libfairlead.so.{version}")

    def test_c_programs_build_against_it_and_run(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.library.parent / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "fairlead-c", env=env).split()
        for test in ("capi_test", "command_capi_test"):
            with self.subTest(test):
                run(os.environ["CC"], "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                    SOURCE / f"tests/capi/{test}.c", "-o", self.folder / test, f"-I{SOURCE}", *flags, "-pthread", "-lm",
                    f"-Wl,-rpath,{self.library.parent}")
                self.assertEqual(run(self.folder / test), "ok\n")

    def test_the_c_headers_stand_alone(self):
        for header in ("fairlead", "fairlead_command"):
            for compiler, standard in ((os.environ["CC"], "c99"), (os.environ["CXX"], "c++11")):
                source = self.folder / ("alone.c" if standard == "c99" else "alone.cc")
                source.write_text(f"#include <fairlead/{header}.h>\nint main(void) {{ return 0; }}\n")
                run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                    f"-I{self.prefix / 'include'}", source)

    def test_the_library_shows_the_public_names_alone(self):
        names = run("nm", "-DC", "--defined-only", self.library).splitlines()
        shown = [line.split(maxsplit=2)[2] for line in names if "FAIRLEAD_0" != line.split()[-1]]
        self.assertTrue(any(name.startswith("fairlead::v0::Engine::create") for name in shown), shown[:5])
        public = re.compile(r"(typeinfo (name )?for |vtable for |guard variable for )?fairlead::v0::|fairlead_[a-z0-9_]+(@@FAIRLEAD_0)?$")
        self.assertEqual([name for name in shown if not public.match(name)], [])

    def test_the_library_needs_little(self):
        needed = re.findall(r"NEEDED.*\[([\w+-]+)\.so", run("readelf", "-d", self.library))
        self.assertLessEqual(set(needed), NEEDED)

    def test_the_headers_name_nothing_internal(self):
        headers = list((self.prefix / "include/fairlead").glob("*.h"))
        self.assertEqual({header.name for header in headers},
                         {header.name for header in (SOURCE / "include/fairlead").glob("*.h")})
        for header in headers:
            code = re.sub(r"//[^\n]*", "", header.read_text())
            self.assertNotRegex(code, r"\bfriend\b|\bnamespace (?!fairlead::inline v0\b)|datapath|::soft\b", header.name)

    def test_what_is_found_at_run_time_is_beside_it(self):
        beside = self.library.parent
        expected = [beside / "libfairlead-ibverbs.so", beside / "fairlead/libibverbs.so.1"]
        if (BUILD / "lib/libfairlead-dpdk.so").exists():
            expected.append(beside / "fairlead/libfairlead-dpdk.so")
        self.assertEqual([each for each in expected if not each.exists()], [])
        self.assertIn("fairlead ", run(self.prefix / "bin/fairlead", "version"))

    def test_the_service_is_of_this_prefix(self):
        unit = (self.prefix / "lib/systemd/system/fairlead.service").read_text()
        program, settings = re.search(r"^ExecStart=(\S+) serve --config (\S+)$", unit, re.M).groups()
        self.assertEqual(program, str(self.prefix / "bin/fairlead"))
        self.assertTrue(pathlib.Path(settings).is_relative_to(self.prefix) and pathlib.Path(settings).exists(), settings)

    def test_it_lives_beside_grpc_and_protobuf(self):
        python = "/usr/bin/python3"  # Debian's, whose packages these are
        if subprocess.run([python, "-c", "import grpc, google.protobuf"], capture_output=True, check=False).returncode:
            self.skipTest("no python3-grpcio and python3-protobuf here (scripts/setup installs them)")
        for first in ("grpc", "fairlead"):
            said = run(python, HERE / "beside_grpc.py", first, self.outside / "libmove.so")
            self.assertEqual(said.count(": ok"), 2, said)


class Subdirectory(unittest.TestCase):
    def test_it_forces_nothing_on_who_adds_it(self):
        with tempfile.TemporaryDirectory() as folder:
            said = run("cmake", "-G", "Ninja", "-S", HERE / "outside", "-B", folder, *COMPILERS,
                       f"-DFAIRLEAD_SOURCE={SOURCE}")
            self.assertNotIn("Fairlead 0", said)
            commands = json.loads(pathlib.Path(folder, "compile_commands.json").read_text())
            theirs = [each["command"] for each in commands if each["file"].startswith(str(HERE))]
            self.assertEqual(len(theirs), 2)
            for command in theirs:
                flags = re.findall(r" (-[\w=+]\S*)", command)
                kept = [flag for flag in flags if not re.match(r"-(I\S+|o|c|fPIC|Dmove_EXPORTS|std=(gnu|c)\+\+20)$", flag)]
                self.assertEqual(kept, [], command)
            ours = [each["file"] for each in commands if each["file"].startswith(str(SOURCE))]
            self.assertEqual([each for each in ours if "/tests/" in each.replace(str(HERE), "") or "/cli/" in each], [])
            cache = pathlib.Path(folder, "CMakeCache.txt").read_text()
            self.assertRegex(cache, r"CMAKE_BUILD_TYPE:STRING=\n")


if __name__ == "__main__":
    for tool in ("pkg-config", "ninja", "readelf", "nm"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool} here (scripts/setup)")
            sys.exit(77)
    unittest.main()
