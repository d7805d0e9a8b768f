#!/usr/bin/env python3
"""Whatever a structure of the C++ API has, C's has too, and Python knows it by name: nothing is forgotten in one of the three.

The structures of C and the settings of Python are written by hand. Read here are the sources: what stands in none of the lists
below has to have a member (`spin` is spin_ns in C, `verbs.mtu` is verbs_mtu), and C's have to be copied where the two meet.
"""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
C_HEADERS = ("include/fairlead/fairlead.h", "include/fairlead/fairlead_command.h")


def text_of(name):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)


def body_of(text, opening):
    """What stands between the braces that `opening` ends with, or nothing."""
    found = re.search(opening + r"\s*\{", text)
    if not found:
        return None
    depth, begin = 1, found.end()
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at]
    return None


def members_of(body):
    """The names that a structure's body declares, functions left out."""
    while re.search(r"\{[^{}]*\}", body):
        body = re.sub(r"\{[^{}]*\}", " ", body)
    body = re.sub(r"enum class \w+ : [\w:]+", "", body)
    names = []
    for statement in body.split(";"):
        pointer = re.search(r"\(\*\s*(\w+)\)\s*\(", statement)
        if pointer:
            names.append(pointer[1])
            continue
        statement = re.sub(r"=[^,]*", "", statement)
        while re.search(r"<[^<>]*>", statement):
            statement = re.sub(r"<[^<>]*>", " ", statement)
        if "(" in statement or not statement.split() or statement.split()[0] in ("static", "using", "struct", "explicit"):
            continue
        for declared in statement.split(","):
            name = re.findall(r"\w+", re.sub(r"\[.*?\]", "", declared))
            if name:
                names.append(name[-1])
    return names


def structure(header, name):
    members = body_of(text_of(f"include/fairlead/{header}"), rf"struct (?:FAIRLEAD_EXPORT )?{name}")
    if members is None:
        raise AssertionError(f"{header} has no struct {name}")
    return members_of(members)


def c_structure(name):
    for header in C_HEADERS:
        body = body_of(text_of(header), rf"typedef struct {name}")
        if body is not None:
            return [each for each in members_of(body) if each != "struct_size"]
    raise AssertionError(f"C has no {name}")


def missing_in_c(header, name, c_name, *, prefix="", renamed=()):
    """Members that C lacks. `renamed`: {member: what C has for it, or the reason why it has nothing}."""
    there, lacking = set(c_structure(c_name)), []
    for member in structure(header, name):
        wanted = dict(renamed).get(member, f"{prefix}{member}")
        wanted = () if isinstance(wanted, Reason) else (wanted,) if isinstance(wanted, str) else wanted
        lacking += [each for each in wanted if not {each, f"{each}_ns"} & there]
    return lacking


class Reason(str):
    """Why there is nothing for a member."""


PEER = structure("peer.h", "PeerStats")
# header, C++'s structure, C's, prefix of the members there, those that are called otherwise
C = [
    ("config.h", "EngineConfig", "fairlead_engine_config", "",
     {each: Reason("its members are in EngineConfig's own structure, below") for each in ("verbs", "tcp", "shm")}),
    ("config.h", "VerbsConfig", "fairlead_engine_config", "verbs_", {}),
    ("config.h", "TcpConfig", "fairlead_engine_config", "tcp_", {}),
    ("config.h", "ShmConfig", "fairlead_engine_config", "shm_", {}),
    ("memory.h", "AllocateOptions", "fairlead_allocate_options", "",
     {"audience": ("audience", "audience_count", "has_audience"), "node": ("node", "has_node")}),
    ("memory.h", "PoolStats", "fairlead_engine_stats", "pool_",
     {"arenas": Reason("a list, for /metrics"), "pages": Reason("a sentence, for the log")}),
    ("engine.h", "CacheCounters", "fairlead_engine_stats", "cache_", {}),
    ("engine.h", "EngineStats", "fairlead_engine_stats", "",
     {"total": PEER, "pool_bytes_used": "pool_used_bytes", "transports": Reason("fairlead_engine_transports"),
      **{each: Reason("above") for each in ("pool", "cache")}}),
    ("engine.h", "TransportStats", "fairlead_transport_stats", "",
     {"retransmissions": ("retransmissions", "has_retransmissions"), "copied": "has_copied"}),
    ("engine.h", "CopiedBytes", "fairlead_transport_stats", "copied_", {}),
    ("engine.h", "DeviceInfo", "fairlead_device_info", "", {}),
    ("peer.h", "PeerStats", "fairlead_peer_stats", "", {}),
    ("peer.h", "Event", "fairlead_event", "", {"data": ("data", "data_size"), "status": ("status", "status_text")}),
    ("tensor.h", "TensorSpec", "fairlead_tensor", "", {}),
    ("transfer.h", "TransferOptions", "fairlead_transfer_options", "",
     {"notify": ("notify", "has_notify"), "notify_bytes": ("notify_bytes", "notify_size")}),
    ("transfer.h", "Descriptor", "fairlead_descriptor", "", {}),
    ("command.h", "Extent", "fairlead_extent", "", {}),
    ("command.h", "Launch", "fairlead_launch", "", {}),
    ("command.h", "Pointer", "fairlead_pointer", "", {}),
    ("command.h", "Mark", "fairlead_mark", "", {}),
    ("command.h", "Failure", "fairlead_failure", "", {}),
    ("command.h", "SessionOptions", "fairlead_session_options", "",
     {"devices": ("devices", "device_count")}),
    ("command.h", "ChannelOptions", "fairlead_channel_options", "", {}),
    ("command.h", "AddressRange", "fairlead_session_limits", "range_", {}),
    ("command.h", "Limits", "fairlead_session_limits", "", {"range": Reason("above")}),
    ("command_service.h", "Tenant", "fairlead_tenant", "", {"devices": ("devices", "device_count")}),
    ("command_service.h", "TenantDeviceStats", "fairlead_tenant_device_stats", "", {}),
    ("command_service.h", "TenantStats", "fairlead_tenant_stats", "", {"devices": ("devices", "device_count")}),
    ("command_service.h", "ServedDevice", "fairlead_served_device", "", {}),
    ("command_service.h", "ServiceConfig", "fairlead_service_config", "",
     {"where": "in_turn", "program": ("program", "program_count"), "tenants": ("tenants", "tenant_count"),
      "devices": ("devices", "device_count")}),
    ("command_service.h", "ServiceStats", "fairlead_service_stats", "", {}),
    ("host_executor.h", "HostExecutorConfig", "fairlead_host_executor_config", "",
     {"kernels": ("kernels", "kernel_count", "without_standard_kernels")}),
    ("cuda_executor.h", "CudaExecutorConfig", "fairlead_cuda_executor_config", "",
     {"images": Reason("C loads modules by the channel")}),
]
# header, structure, Python's source, how a name stands there, prefix, those that are called otherwise
SETTING, ENTRY, ARGUMENT = r'\{"%s",', r'\["%s"\] =', r'py::arg\("%s"\)'
PYTHON = [
    ("config.h", "EngineConfig", "engines.cc", SETTING, "",
     {each: Reason("its members have a prefix") for each in ("verbs", "tcp", "shm")}),
    ("config.h", "VerbsConfig", "engines.cc", SETTING, "verbs_", {}),
    ("config.h", "TcpConfig", "engines.cc", SETTING, "tcp_", {}),
    ("config.h", "ShmConfig", "engines.cc", SETTING, "shm_", {}),
    ("memory.h", "AllocateOptions", "engines.cc", ARGUMENT, "", {}),
    ("memory.h", "PoolStats", "engines.cc", ENTRY, "pool_",
     {"arenas": Reason("a list, for /metrics"), "pages": Reason("a sentence, for the log")}),
    ("engine.h", "CacheCounters", "engines.cc", ENTRY, "cache_", {}),
    ("engine.h", "EngineStats", "engines.cc", ENTRY, "",
     {"pool_bytes_used": "pool_used_bytes", **{each: Reason("another line's") for each in ("total", "pool", "cache")}}),
    ("engine.h", "TransportStats", "engines.cc", ENTRY, "", {}),
    ("engine.h", "CopiedBytes", "engines.cc", ENTRY, "", {}),
    ("engine.h", "DeviceInfo", "engines.cc", ENTRY, "", {}),
    ("peer.h", "PeerStats", "peers.cc", ENTRY, "", {}),
    ("transfer.h", "TransferOptions", "peers.cc", ARGUMENT, "",
     {"report": Reason("the package's own"), "tag": Reason("the package's own"), "traffic": "urgent"}),
    ("command.h", "SessionOptions", "commands.cc", ARGUMENT, "", {}),
    ("command.h", "ChannelOptions", "commands.cc", ARGUMENT, "", {}),
    ("command.h", "Limits", "commands.cc", ENTRY, "",
     {"least_priority": "priorities", "greatest_priority": "priorities"}),
    ("command.h", "Failure", "commands.cc", ENTRY, "", {}),
    ("command_service.h", "ServiceStats", "commands.cc", ENTRY, "", {}),
]


class Mirrors(unittest.TestCase):
    def test_c_has_what_cpp_has(self):
        for header, name, c_name, prefix, renamed in C:
            with self.subTest(name):
                lacking = missing_in_c(header, name, c_name, prefix=prefix, renamed=renamed)
                self.assertEqual(lacking, [], f"{c_name} lacks these of {name}")
                self.assertLessEqual(set(renamed), set(structure(header, name)), "renamed, and gone")

    def test_every_structure_of_c_is_looked_at(self):
        ours = {"fairlead_bytes": "std::span", "fairlead_parameter": "command::Parameter is made by layout()",
                "fairlead_host_kernel": "HostKernel has functions"}
        there = {name for header in C_HEADERS for name in re.findall(r"typedef struct (fairlead_\w+)\s*\{", text_of(header))}
        self.assertEqual(there - {c_name for _, _, c_name, _, _ in C}, set(ours))

    def test_what_c_is_given_is_copied_both_ways(self):
        source = text_of("capi/config.cc")
        both = set(re.findall(r"to\.(\w+) = from\.\1;", source))
        for member in c_structure("fairlead_engine_config"):
            with self.subTest(member):
                if member not in both:
                    self.assertIn(f"to.{member} = ", source)
                    self.assertTrue(re.search(rf"from\.{member}\b", source))

    def test_what_c_is_told_is_filled_in(self):
        for source, name in (("capi/facts.cc", "fairlead_transport_stats"), ("capi/facts.cc", "fairlead_device_info"),
                             ("capi/command_service.cc", "fairlead_service_stats"),
                             ("capi/command_service.cc", "fairlead_tenant_stats"),
                             ("capi/command_service.cc", "fairlead_tenant_device_stats"),
                             ("capi/command_client.cc", "fairlead_session_limits"), ("capi/stats.h", "fairlead_peer_stats")):
            for member in c_structure(name):
                with self.subTest(name, member=member):
                    self.assertTrue(re.search(rf"\w\.{member}(?:\[\w+\])? = |{member}, ", text_of(source)))
        for member in set(c_structure("fairlead_engine_stats")) - set(PEER):
            with self.subTest(member):
                self.assertIn(f"full.{member} = ", text_of("capi/facts.cc"))

    def test_python_has_what_cpp_has(self):
        for header, name, source, form, prefix, renamed in PYTHON:
            text = text_of(f"python/src/{source}")
            for member in structure(header, name):
                wanted = renamed.get(member, prefix + member)
                if not isinstance(wanted, Reason):
                    with self.subTest(name, member=member):
                        self.assertTrue(re.search(form % wanted, text), f"{source} has nothing for {name}::{member}")

    def test_enumerators(self):
        for header, name, c_name in (("status.h", "Code", "fairlead_code"), ("config.h", "Progress", "fairlead_progress"),
                                     ("config.h", "PathChoice", "fairlead_path_choice"), ("memory.h", "Access", "fairlead_access"),
                                     ("tensor.h", "DType", "fairlead_dtype"), ("transfer.h", "TrafficClass", "fairlead_traffic"),
                                     ("peer.h", "PeerState", "fairlead_peer_state"), ("log.h", "LogLevel", "fairlead_log_level"),
                                     ("peer.h", "Kind", "fairlead_event_kind"), ("command.h", "Stage", "fairlead_stage"),
                                     ("command.h", "Scope", "fairlead_scope"), ("command_service.h", "Sharing", "fairlead_sharing"),
                                     ("host_executor.h", "ParameterKind", "fairlead_parameter_kind")):
            with self.subTest(name):
                cpp = body_of(text_of(f"include/fairlead/{header}"), rf"enum class {name} : std::uint8_t")
                bodies = (body_of(text_of(each), rf"typedef enum {c_name} FAIRLEAD_ANY_NUMBER") for each in C_HEADERS)
                [mirrored] = [each for each in bodies if each is not None]
                ours = [each.replace("_", "").lower() for each in re.findall(r"\bk(\w+)", re.sub(r"=[^,]*", "", cpp))]
                theirs = [each.replace("_", "").lower() for each in re.findall(r"\b[A-Z_0-9]+\b", re.sub(r"=[^,]*", "", mirrored))]
                self.assertEqual(len(ours), len(theirs))
                for one, other in zip(ours, theirs):
                    self.assertTrue(other.endswith(one), f"{one} beside {other}")


class TheReader(unittest.TestCase):
    def test_members(self):
        self.assertEqual(members_of("std::size_t a = std::size_t{8} << 20, b = 1; std::map<int, std::vector<int>> c{}; int f() const;"
                                    " enum class V : char { kA }; enum class W : char { kA, kB } w = W::kA; std::function<void(int, int)> g;"
                                    " const char* const* d; uint64_t e[3]; void (*h)(int x); static int s;"),
                         ["a", "b", "c", "w", "g", "d", "e", "h"])

    def test_what_is_missing_is_named(self):
        self.assertEqual(missing_in_c("config.h", "TcpConfig", "fairlead_engine_config", prefix="udp_")[:2], ["udp_host", "udp_port"])
        self.assertIn("spin", missing_in_c("config.h", "EngineConfig", "fairlead_bytes"))


if __name__ == "__main__":
    unittest.main()
