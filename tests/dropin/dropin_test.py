"""The drop-in libraries as programs meet them, and `fairlead run`.

LOADER, OLD_LIBC, LEAVER, HANDLER_LEAVER, CANCELLED, STUB and NEEDS_NEWER are the programs and libraries built beside this
file, NEWER is the folder of what the last needs; FAIRLEAD is the program. Whatever of rdma-core is not installed is skipped.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

FAIRLEAD = os.environ["FAIRLEAD"]
LOADER = os.environ["LOADER"]
OLD_LIBC = os.environ["OLD_LIBC"]
LEAVER = os.environ["LEAVER"]
HANDLER_LEAVER = os.environ["HANDLER_LEAVER"]
CANCELLED = os.environ["CANCELLED"]
STUB = os.environ["STUB"]
NEEDS_NEWER = os.environ["NEEDS_NEWER"]
NEWER = os.environ["NEWER"]
LIB = pathlib.Path(FAIRLEAD).resolve().parent.parent / "lib"
PRELOAD = str(LIB / "libfairlead-ibverbs.so")
FOLDER = str(LIB / "fairlead")
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("FAIRLEAD_", "LD_"))}


def system_library():
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"):
        path = f"{folder}/libibverbs.so.1"
        if os.path.exists(path):
            return path
    return None


def exports(path):
    """name -> versions ('' for none) of what a library defines."""
    found = {}
    out = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        kind, symbol = line.split()[1:3]
        if kind in "TBDVW":
            name, _, version = symbol.partition("@")
            found.setdefault(name, set()).add(version)
    return found


def run(*words, env=None, timeout=60):
    return subprocess.run([str(w) for w in words], env={**CLEAN, **(env or {})}, capture_output=True, text=True,
                          errors="replace", timeout=timeout, stdin=subprocess.DEVNULL)


class Case(unittest.TestCase):
    def succeeds(self, *words, env=None):
        result = run(*words, env=env)
        self.assertEqual(result.returncode, 0, f"{words}\n{result.stdout}{result.stderr}")
        return result.stdout


@unittest.skipUnless(system_library(), "no libibverbs.so.1 of the system to compare with; install libibverbs1")
class Exports(Case):
    # Between libibverbs and its drivers: nothing of a device of ours passes there.
    PRIVATE = re.compile(r"ibv_cmd_|verbs_|_verbs_|__|execute_ioctl|ibv_register_driver|ibv_read_ibdev_sysfs_file")

    def test_the_preload_has_every_function_that_programs_call(self):
        public = {name for name in exports(system_library()) if not self.PRIVATE.match(name)}
        self.assertGreater(len(public), 70)
        self.assertEqual(public - set(exports(PRELOAD)), set())

    def test_the_versioned_library_has_every_symbol_under_its_versions(self):
        self.assertEqual(exports(f"{FOLDER}/libibverbs.so.1"), exports(system_library()))

    def test_the_preload_shows_nothing_else(self):
        c_library = {"access", "open", "open64", "fopen", "fopen64", "realpath", "__open_2", "__open64_2", "__realpath_chk", "stat", "stat64", "lstat", "lstat64", "__xstat",
                 "__xstat64", "__lxstat", "__lxstat64", "_exit", "_Exit"}
        known = set(exports(system_library())) | {"fairlead_dropin_symbol"} | c_library
        self.assertEqual({name for name in exports(PRELOAD) if not name.startswith(("rdma_", "rsocket"))} - known, set())

    def test_constants_agree(self):
        script = f"""
import ctypes, sys
ours, theirs = ctypes.CDLL({PRELOAD!r}), ctypes.CDLL({system_library()!r})
for name in ("ibv_wc_status_str", "ibv_event_type_str", "ibv_node_type_str", "ibv_port_state_str"):
    for library in (ours, theirs):
        getattr(library, name).restype = ctypes.c_char_p
for name, last in (("ibv_wc_status_str", 30), ("ibv_event_type_str", 30), ("ibv_node_type_str", 12),
                   ("ibv_port_state_str", 9), ("ibv_rate_to_mult", 40), ("ibv_rate_to_mbps", 40),
                   ("mult_to_ibv_rate", 600), ("mbps_to_ibv_rate", 1300000)):
    for value in range(-1, last, 1 if last < 1000 else 3):
        a, b = getattr(ours, name)(value), getattr(theirs, name)(value)
        if a != b:
            sys.exit(f"{{name}}({{value}}) is {{a}}, the system's {{b}}")
"""
        self.succeeds(sys.executable, "-c", script)


class Programs(Case):
    """A C program that loads libibverbs by name and version."""

    def check(self, mode, env):
        self.assertIn("moved 10000 bytes", self.succeeds(LOADER, mode, env=env))

    def test_found_by_the_library_path(self):
        for mode in ("move", "exit", "unload", "fork"):
            with self.subTest(mode=mode):
                self.check(mode, {"LD_LIBRARY_PATH": FOLDER})

    def test_with_both(self):
        for mode in ("move", "exit", "unload", "fork"):
            with self.subTest(mode=mode):
                self.check(mode, {"LD_LIBRARY_PATH": FOLDER, "LD_PRELOAD": PRELOAD})

    def test_the_peer_of_one_that_ends_by__exit_is_told(self):
        number = os.getpid() % 250 + 1
        out = self.succeeds(LEAVER, f"127.{number}.9.1", f"127.{number}.9.2", env={"LD_PRELOAD": PRELOAD})
        self.assertEqual(out, "RDMA_CM_EVENT_DISCONNECTED\n")

    def test_a_handler_that_interrupted_malloc_may_call__exit(self):
        number = os.getpid() % 250 + 1
        for words in ((), (f"127.{number}.9.4",)):
            with self.subTest(words=words):
                left = run(HANDLER_LEAVER, *words,
                           env={"LD_PRELOAD": PRELOAD, "FAIRLEAD_SOFT_ADDRESS": f"127.{number}.9.3"})
                self.assertEqual(left.returncode, 7, left.stdout + left.stderr)

    def test_threads_may_be_cancelled(self):
        with tempfile.TemporaryDirectory() as folder:
            fifo = f"{folder}/fifo"
            os.mkfifo(fifo)
            for packet_io in ("udp", "udp,local=sockets"):
                with self.subTest(packet_io=packet_io):
                    out = self.succeeds(CANCELLED, fifo, env={"LD_PRELOAD": PRELOAD, "FAIRLEAD_PACKET_IO": packet_io,
                                                              "FAIRLEAD_RDMA_CM": "softroce"})
                    self.assertEqual(out, "all as they were\n")

    def test_alone_where_the_system_has_none(self):
        self.check("move", {"LD_LIBRARY_PATH": FOLDER, "FAIRLEAD_SYSTEM_IBVERBS": "/nonexistent/libibverbs.so.1"})

    @unittest.skipUnless(shutil.which("ibv_devinfo"), "no ibv_devinfo; install ibverbs-utils")
    def test_linked_programs_see_the_device_either_way(self):
        for env in ({"LD_PRELOAD": PRELOAD}, {"LD_LIBRARY_PATH": FOLDER}):
            with self.subTest(env=env):
                out = self.succeeds("ibv_devinfo", "-v", env=env)
                self.assertRegex(out, r"hca_id:\s+soft0")
                self.assertRegex(out, r"GID\[\s*1\]:\s+::ffff:127\.0\.0\.\d+, RoCE v2")


class Files(Case):
    """What UCX and others read from files of the kernel."""

    SCRIPT = f"""
import ctypes, os, stat
assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and not os.path.exists("/dev/infiniband/other")
libc = ctypes.CDLL(None)
assert libc.access(b"/dev/infiniband/softroce", os.R_OK | os.W_OK) == 0
assert libc.access(b"/dev/infiniband/other", os.R_OK) == -1
types = "/sys/class/infiniband/soft0/ports/1/gid_attrs/types/1"
assert not os.path.exists(types)
verbs = ctypes.CDLL({PRELOAD!r})
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
print(open(types).read(), end="")
print(open("/sys/class/infiniband/soft0/ports/1/gids/1").read(), end="")
print(open("/sys/class/infiniband/soft0/ports/1/gid_attrs/ndevs/1").read(), end="")
for path in (types[:-1] + "9", types + "x", "/sys/class/infiniband/soft0/ports/2/gids/1", types.replace("soft0", "soft")):
    try:
        open(path)
        print(path, "is there")
    except FileNotFoundError:
        pass
assert open("/proc/self/comm").read()
assert verbs.ibv_close_device(context) == 0
try:
    open(types)
    print("the file outlived the device")
except FileNotFoundError:
    pass
"""

    def test_of_an_open_device(self):
        out = self.succeeds(sys.executable, "-c", self.SCRIPT, env={"LD_PRELOAD": PRELOAD})
        self.assertRegex(out, r"^RoCE v2\n(0000:){5}ffff:7f00:[0-9a-f]{4}\nlo\n$")

    def test_as_a_fortified_program_sees_them(self):
        script = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
node = b"/sys/class/infiniband/soft0/device/numa_node"
for name in "__open_2", "__open64_2":
    fd = getattr(libc, name)(node, os.O_RDONLY)
    print(name, os.read(fd, 10), getattr(libc, name)(node + b"s", os.O_RDONLY), os.strerror(ctypes.get_errno()))
resolve = getattr(libc, "__realpath_chk")
resolve.restype = ctypes.c_char_p
room = ctypes.create_string_buffer(4096)
print(resolve(node, room, ctypes.c_size_t(4096)).decode(), resolve(b"/dev/../dev", room, ctypes.c_size_t(4096)).decode())
"""
        out = self.succeeds(sys.executable, "-c", script, env={"LD_PRELOAD": PRELOAD})
        self.assertEqual(out.splitlines(), ["__open_2 b'-1\\n' -1 No such file or directory",
                                            "__open64_2 b'-1\\n' -1 No such file or directory",
                                            "/sys/devices/virtual/infiniband/soft0/device/numa_node /dev"])

    def test_a_path_that_cannot_be_read_is_the_systems_to_refuse(self):
        script = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = ctypes.c_void_p
facts = ctypes.create_string_buffer(1024)
for nowhere in ctypes.c_void_p(1), ctypes.c_void_p(None):
    for name, more in (("open", (0,)), ("open64", (0,)), ("access", (0,)), ("stat", (facts,)), ("lstat64", (facts,)),
                       ("fopen", (b"r",))):
        ctypes.set_errno(0)
        answer = getattr(libc, name)(nowhere, *more)
        print(name, answer in (-1, None), errno.errorcode[ctypes.get_errno()])
"""
        out = self.succeeds(sys.executable, "-c", script, env={"LD_PRELOAD": PRELOAD})
        calls = ("open", "open64", "access", "stat", "lstat64", "fopen")
        self.assertEqual(out.splitlines(), [f"{call} True EFAULT" for call in calls] * 2)

    def test_as_a_program_sees_them_that_was_built_for_an_old_c_library(self):
        imported = subprocess.run(["nm", "-D", "--undefined-only", OLD_LIBC], capture_output=True, text=True, check=True).stdout
        self.assertRegex(imported, r"\b__xstat\b")
        said = {}
        for line in self.succeeds(FAIRLEAD, "run", "--", OLD_LIBC).splitlines():
            if line.startswith("# "):
                path = line[2:]
            else:
                said.setdefault(path, set()).add(line)
        folder = "/sys/class/infiniband/soft0"

        def all_say(calls, words):
            return {f"{call}: {words}" for call in calls.split()}

        def kinds(words, accessible):
            return all_say("__xstat __xstat64 __lxstat stat64", words) | {f"access: {accessible}"}

        self.assertEqual(said["/dev/infiniband/softroce"], kinds("character device", "yes"))
        self.assertEqual(said[folder], kinds("folder", "yes") | {"realpath: /sys/devices/virtual/infiniband/soft0"})
        self.assertEqual(said[f"{folder}/../.."], {"realpath: /sys/devices/virtual"})
        self.assertEqual(said[f"{folder}/../../../../.."], {"realpath: /"})
        node = "device/numa_node"
        self.assertEqual(said[f"{folder}/./{node}"], {f"realpath: /sys/devices/virtual/infiniband/soft0/{node}"})
        texts = "fopen fopen64 open open64"
        self.assertEqual(said[f"{folder}/{node}"], kinds("file", "yes") | all_say(texts, "-1"))
        self.assertEqual(said[f"/sys/devices/virtual/infiniband/soft0/{node}"], all_say(texts, "-1"))
        self.assertEqual(said[f"{folder}/ports/1/gid_attrs/types/1"], all_say(texts, "RoCE v2"))
        self.assertEqual(said[f"{folder}/ports/1/gid_attrs/ndevs/1"], all_say(texts, "lo"))
        for missing in ("/dev/infiniband/other", f"{folder}1"):  # soft01 is no device
            self.assertEqual(said[missing], kinds("no", "no"))
        for missing in (f"{folder}/nothing", f"{folder}/../other", f"{folder}1/../.."):
            self.assertEqual(said[missing], {"realpath: no"})
        for missing in (f"{folder}/ports/1/nothing/1", f"{folder}1/{node}"):
            self.assertEqual(said[missing], all_say(texts, "no"))


class GidEntries(Case):
    """A program of a later day, whose entries are larger."""

    SCRIPT = f"""
import ctypes
verbs = ctypes.CDLL({PRELOAD!r})
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_open_device.restype = ctypes.c_void_p
table = getattr(verbs, "_ibv_query_gid_table")
table.restype = ctypes.c_ssize_t
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0])))
size = 48
entries = (ctypes.c_uint8 * (64 * size))(*[255] * (64 * size))
count = table(context, entries, ctypes.c_size_t(64), ctypes.c_uint32(0), ctypes.c_size_t(size))
one = (ctypes.c_uint8 * size)(*[255] * size)
assert getattr(verbs, "_ibv_query_gid_ex")(context, 1, 1, one, 0, ctypes.c_size_t(size)) == 0
print(count >= 2, bytes(entries[size:2 * size]) == bytes(one), bytes(one[32:]) == bytes(16), set(entries[count * size:]))
assert verbs.ibv_close_device(context) == 0
"""

    def test_end_with_zeros(self):
        out = self.succeeds(sys.executable, "-c", self.SCRIPT, env={"FAIRLEAD_SOFT_DEVICE": "soft0"})
        self.assertEqual(out, "True True True {255}\n")


class Sockets(Case):
    """librdmacm's sockets, which cannot work over a device that it does not know."""

    SCRIPT = """
import ctypes, os, socket
rsocket = ctypes.CDLL(None, use_errno=True).rsocket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    print(rsocket(socket.AF_INET, kind, 0), os.strerror(ctypes.get_errno()))
"""

    def test_over_rdma_are_refused(self):
        env = {"LD_PRELOAD": PRELOAD, "FAIRLEAD_RDMA_CM": "softroce"}
        result = run(sys.executable, "-c", self.SCRIPT, env=env)
        self.assertEqual(result.stdout, "-1 Operation not supported\n" * 2, result.stderr)
        self.assertIn("softroce has no sockets over RDMA", result.stderr)


class SystemDevices(Case):
    """Devices of the system's library stay visible, and calls about them reach it."""

    SCRIPT = f"""
import ctypes
verbs = ctypes.CDLL({PRELOAD!r})
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_open_device.restype = ctypes.c_void_p
verbs.ibv_get_device_guid.restype = ctypes.c_uint64
count = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(count))
print(count.value, [verbs.ibv_get_device_name(ctypes.c_void_p(devices[i])).decode() for i in range(count.value)])
assert devices[count.value] is None
stub = ctypes.c_void_p(devices[1])
print(hex(verbs.ibv_get_device_guid(stub)))
context = ctypes.c_void_p(verbs.ibv_open_device(stub))
verbs.ibv_free_device_list(devices)
attributes = (ctypes.c_uint8 * 4096)()
assert verbs.ibv_query_device(context, attributes) == 0
print(b"\\x50\\x51" in bytes(attributes), verbs.ibv_close_device(context))
"""

    def test_calls_about_them_are_forwarded(self):
        out = self.succeeds(sys.executable, "-c", self.SCRIPT, env={"FAIRLEAD_SYSTEM_IBVERBS": STUB})
        self.assertEqual(out.splitlines(), ["2 ['soft0', 'stub0']", "0x1122334455667788", "True 0"])

    def test_a_library_that_cannot_be_loaded_is_said(self):
        result = run(LOADER, "move", env={"LD_LIBRARY_PATH": FOLDER, "FAIRLEAD_SYSTEM_IBVERBS": "/nonexistent"})
        self.assertIn("/nonexistent", result.stderr)


class Run(Case):
    def refused(self, code, pattern, *words):
        result = run(FAIRLEAD, "run", *words)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertRegex(result.stderr, pattern)

    def test_says_in_one_line_what_the_program_sees(self):
        result = run(FAIRLEAD, "run", "--device", "soft7", "--address", "127.0.0.9", "--", "sh", "-c", "exit 7")
        self.assertEqual(result.returncode, 7)
        self.assertRegex(result.stderr, r"^fairlead run: sh will see soft7 \(softroce, .*127\.0\.0\.9\); devices of the "
                                        r"system: .+\n$")

    def test_gives_the_loader_both_libraries_and_the_settings(self):
        out = self.succeeds(FAIRLEAD, "run", "--device", "soft7", "--packet-io", "udp,drop=0.5", "--profile", "pvrdma",
                            "--", "env", env={"LD_PRELOAD": "/nonexistent.so", "LD_LIBRARY_PATH": "/mine"})
        lines = out.splitlines()
        for expected in (f"LD_PRELOAD={PRELOAD}:/nonexistent.so", f"LD_LIBRARY_PATH={FOLDER}:/mine",
                         "FAIRLEAD_SOFT_DEVICE=soft7", "FAIRLEAD_PACKET_IO=udp,drop=0.5",
                         "FAIRLEAD_SOFT_PROFILE=pvrdma"):
            self.assertIn(expected, lines)

    def test_leaves_a_libibverbs_that_is_newer_in_its_place(self):
        env = {"LD_LIBRARY_PATH": NEWER}
        result = run(FAIRLEAD, "run", "--", NEEDS_NEWER, env=env)
        self.assertEqual((result.returncode, result.stdout), (0, "42\n"), result.stderr)
        self.assertRegex(result.stderr, rf"{re.escape(NEWER)}/libibverbs\.so\.1 has IBVERBS_9\.99, which .* has not")
        lines = self.succeeds(FAIRLEAD, "run", "--", "env", env=env).splitlines()
        self.assertIn(f"LD_PRELOAD={PRELOAD}", lines)
        self.assertIn(f"LD_LIBRARY_PATH={NEWER}", lines)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ldconfig"),
                         "only root can have a loader's cache of its own; needs unshare and ldconfig")
    def test_names_the_systems_library_where_only_the_loaders_cache_knows_it(self):
        with tempfile.TemporaryDirectory() as folder:
            library, settings, cache = (f"{folder}/{name}" for name in ("libibverbs.so.1", "conf", "cache"))
            shutil.copy(STUB, library)
            pathlib.Path(settings).write_text(f"{folder}\ninclude /etc/ld.so.conf\n")
            self.succeeds("ldconfig", "-X", "-C", cache, "-f", settings)
            begin = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/ld.so.cache || exit 77; exec "$@"', cache)
            if run(*begin, "true").returncode != 0:
                self.skipTest("no namespace of mounts to be had")
            for env, expected in (({}, library), ({"FAIRLEAD_SYSTEM_IBVERBS": "/mine.so"}, "/mine.so")):
                with self.subTest(env=env):
                    lines = self.succeeds(*begin, FAIRLEAD, "run", "--", "env", env=env).splitlines()
                    self.assertIn(f"FAIRLEAD_SYSTEM_IBVERBS={expected}", lines)
                    self.assertIn(f"LD_LIBRARY_PATH={FOLDER}", lines)

    def test_moves_data(self):
        self.assertIn("moved", self.succeeds(FAIRLEAD, "run", "--", LOADER, "move"))

    def test_what_fairlead_ignores_its_program_does_not(self):
        ignored = self.succeeds(FAIRLEAD, "run", "--", "grep", "SigIgn", "/proc/self/status")
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            self.assertEqual(int(ignored.split()[1], 16) >> (number - 1) & 1, 0, f"{ignored}: signal {number}")

    def test_wrong_usage_names_what_is_legal(self):
        self.refused(2, r"no program; give the program after '--': fairlead run", "--device", "soft0")
        self.refused(2, r"legal: full, pvrdma", "--profile", "mlx5", "--", "true")
        self.refused(2, r"pigeon.*legal: udp", "--packet-io", "pigeon", "--", "true")
        self.refused(2, r"1\.2\.3.*is no IPv4 address", "--address", "1.2.3", "--", "true")
        self.refused(2, r"device name ''", "--device", "", "--", "true")

    def test_programs_that_cannot_be_started(self):
        self.refused(127, r"there is no program nosuchprogram in PATH", "--", "nosuchprogram")
        self.refused(127, r"/etc/passwd is no executable file", "--", "/etc/passwd")

    def test_static_programs_are_refused_also_behind_a_script(self):
        static = next((p for p in ("/sbin/ldconfig", "/bin/busybox") if self.is_static(p)), None)
        if static is None:
            self.skipTest("no static program on this machine")
        self.refused(127, "linked statically", "--", static)
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "script"
            script.write_text(f"#!{static} -p\n")
            script.chmod(0o755)
            self.refused(127, f"{static} is linked statically", "--", script)

    @staticmethod
    def is_static(path):
        return os.path.exists(path) and b"ld-linux" not in pathlib.Path(path).read_bytes()[:4096]

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a program of another user")
    def test_programs_that_gain_rights_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            shutil.copy("/bin/true", program)
            os.chown(program, 65534, 65534)
            os.chmod(program, 0o4755)
            self.refused(127, "more rights than its caller", "--", program)

    def test_libraries_in_a_folder_that_the_loader_cannot_be_told(self):
        for name in ("with blank", "with:colon", "with$dollar"):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(parent) / name
                (folder / "lib" / "fairlead").mkdir(parents=True)
                (folder / "bin").mkdir()
                copy = shutil.copy(FAIRLEAD, folder / "bin" / "fairlead")
                shutil.copy(PRELOAD, folder / "lib")
                shutil.copy(f"{FOLDER}/libibverbs.so.1", folder / "lib" / "fairlead")
                result = run(copy, "run", "--", "true")
                self.assertEqual(result.returncode, 127, result.stderr)
                self.assertRegex(result.stderr, f"{re.escape(name)}.* cannot be preloaded.*move Fairlead")

    def test_libraries_that_are_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "fairlead")
            shutil.copy(FAIRLEAD, copy)
            result = run(copy, "run", "--", "true")
            self.assertEqual(result.returncode, 127)
            self.assertRegex(result.stderr, "no libfairlead-ibverbs.so .*looked for")


if __name__ == "__main__":
    unittest.main(verbosity=2)
