#include "bench/net/local_wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

extern char** environ;

namespace fairlead::bench {
namespace {

constexpr int kXdpMtu = 3490;  // what af_xdp carries in one frame
constexpr int kVethMtu = 9000;

// Runs `ip` in silence; whether it ended well.
bool ip(std::vector<std::string> words) {
  words.insert(words.begin(), "ip");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  while (error == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return error == 0 && status == 0;
}

}  // namespace

Result<LocalWire> LocalWire::make(std::string_view packet_io) {
  constexpr std::string_view kDpdk = "dpdk:";
  LocalWire wire;
  wire.target_ = wire.initiator_ = packet_io;
  const std::string_view port = packet_io.substr(0, packet_io.find(','));
  const bool dpdk = port.starts_with(kDpdk);
  if (!dpdk && port != "memif") return wire;
  const std::string_view name = dpdk ? port.substr(kDpdk.size()) : port;
  const std::string_view more = packet_io.substr(port.size());
  if (more.find(",ip=") != more.npos) {
    return Status(Code::kInvalidArgument,
                  fmt::format("packet_io: both ends of '{}' would have one address; leave ip= out, or name each end "
                              "(`bench --server` with {},role=server,..., and bench)",
                              packet_io, dpdk ? "dpdk:net_memif0" : "memif"));
  }
  const pid_t self = ::getpid();
  if (name == "memif") {
    if (more.find(",role=") != more.npos) return wire;  // one end, named as such
    const auto end = [&](std::string_view role) {
      return fmt::format("{},role={},socket=fairlead-bench-{}{}", dpdk ? "dpdk:net_memif0" : "memif", role, self, more);
    };
    wire.target_ = end("server");
    wire.initiator_ = end("client");
  } else if (name == "vhost") {
    std::string folder = (std::filesystem::temp_directory_path() / "fairlead-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
      return Status(Code::kResourceExhausted, fmt::format("cannot make a folder {}: {}", folder, std::strerror(errno)));
    }
    wire.folder_ = folder;
    wire.target_ = fmt::format("dpdk:net_vhost0,iface={}/vhost{}", folder, more);
    wire.initiator_ = fmt::format("dpdk:net_virtio_user0,path={}/vhost,queue_size=1024{}", folder, more);
  } else if (name == "af_packet" || name == "af_xdp") {
    const std::string a = fmt::format("fl{}a", self);
    const std::string b = fmt::format("fl{}b", self);
    const std::string mtu = std::to_string(name == "af_xdp" ? kXdpMtu : kVethMtu);
    if (!ip({"link", "add", a, "mtu", mtu, "type", "veth", "peer", "name", b, "mtu", mtu})) {
      return Status(Code::kPermissionDenied,
                    fmt::format("cannot make a veth pair for dpdk:{}: it takes `ip` (apt-get install iproute2), "
                                "CAP_NET_ADMIN and CAP_NET_RAW; as root, or in a namespace of its own: unshare -Urn "
                                "fairlead bench ...",
                                name));
    }
    wire.interface_ = a;
    ip({"link", "set", "lo", "up"});  // in a new namespace it is not, and the control connection needs it
    for (const std::string& each : {a, b}) {
      if (!ip({"link", "set", each, "up"})) {
        return Status(Code::kPermissionDenied, fmt::format("cannot set {} up", each));
      }
    }
    wire.target_ = fmt::format("dpdk:net_{}0,iface={}{}", name, a, more);
    wire.initiator_ = fmt::format("dpdk:net_{}0,iface={}{}", name, b, more);
  }
  return wire;
}

LocalWire::LocalWire(LocalWire&& other) noexcept
    : target_(std::move(other.target_)),
      initiator_(std::move(other.initiator_)),
      folder_(std::exchange(other.folder_, {})),
      interface_(std::exchange(other.interface_, {})) {}

LocalWire::~LocalWire() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  if (!interface_.empty()) ip({"link", "delete", interface_});
}

}  // namespace fairlead::bench
