#include "verbs/soft/port/dpdk/driver.h"

#include <dlfcn.h>
#include <rte_ether.h>
#include <rte_version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "verbs/soft/port/dpdk/host_interface.h"
#include "verbs/soft/port/socket_file.h"

namespace fairlead::dpdk {
namespace {

// ABI 23 belongs to 22.11: the last two digits of the year in which the next ABI begins.
constexpr int kAbi = RTE_VER_YEAR + (RTE_VER_MONTH == 11 ? 1 : 0);
constexpr std::uint32_t kMemifBuffer = 4352;
constexpr const char* kMemifSocket = "/run/memif.sock";
constexpr std::uint32_t kRing = 8;              // log2 of memif's slots: together they fit a core's cache
constexpr std::uint32_t kXdpRoom = 3840 - 128;  // af_xdp: with headers a page; another drops all frames
constexpr std::uint32_t kXdpMtu = 3490;
constexpr std::uint32_t kPacketFrame = 8192;  // af_packet: of its rings
constexpr std::uint32_t kPacketHeader = 96;   // of which the kernel takes

constexpr std::array<std::string_view, 11> kMemifOptions = {
    "role", "socket", "socket-abstract", "id",        "bsize",    "rsize",
    "mac",  "secret", "zero-copy",       "owner-uid", "owner-gid"};

constexpr std::array<std::string_view, 5> kCopying = {"net_memif", "net_vhost", "net_af_packet", "eth_af_packet",
                                                      "net_tap"};

class Options {
 public:
  explicit Options(std::string_view devargs) {
    for (std::size_t comma; !devargs.empty(); devargs.remove_prefix(std::min(comma, devargs.size() - 1) + 1)) {
      comma = devargs.find(',');
      words_.emplace_back(devargs.substr(0, comma));
      if (comma == std::string_view::npos) break;
    }
    if (words_.empty()) words_.emplace_back();
  }

  [[nodiscard]] const std::string& name() const { return words_.front(); }
  [[nodiscard]] std::string_view get(std::string_view key) const {
    for (const std::string& word : words_) {
      if (word.starts_with(key) && word.size() > key.size() && word[key.size()] == '=') {
        return std::string_view(word).substr(key.size() + 1);
      }
    }
    return {};
  }
  /// The option's number, given or, where it is missing, added.
  std::uint32_t number(std::string_view key, std::uint32_t otherwise) {
    const std::string_view text = get(key);
    if (text.empty()) {
      words_.push_back(std::string(key) + "=" + std::to_string(otherwise));
      return otherwise;
    }
    std::uint32_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }
  /// A word that is none of these options; empty if there is none.
  [[nodiscard]] std::string stranger(std::span<const std::string_view> keys) const {
    for (const std::string& word : std::span(words_).subspan(1)) {
      if (std::ranges::find(keys, word.substr(0, word.find('='))) == keys.end()) return word;
    }
    return {};
  }
  [[nodiscard]] std::string join() const {
    std::string text;
    for (const std::string& word : words_) text += (text.empty() ? "" : ",") + word;
    return text;
  }

 private:
  std::vector<std::string> words_;
};

std::string without_number(const std::string& name) { return name.substr(0, name.find_last_not_of("0123456789") + 1); }

std::string library_of(std::string_view driver) {
  std::string name(driver);
  if (name == "net_virtio_user") name = "net_virtio";
  if (name == "net_tun") name = "net_tap";
  return name;
}

// Drivers that make their queues when they are probed.
void ask_for_queues(std::string_view driver, std::uint32_t queues, Options& options) {
  if (driver == "net_memif") {
    // A queue that the other end has no ring for would use the ring of queue 0. So ends that differ do not meet.
    options.number("id", queues - 1);
  } else if (driver == "net_vhost" || driver == "net_virtio_user") {
    options.number("queues", queues);
    if (driver == "net_virtio_user") options.number("cq", 1);  // the control queue, by which it switches them on
  } else if (driver == "net_af_packet" || driver == "eth_af_packet") {
    options.number("qpairs", queues);
  } else if (driver == "net_af_xdp") {
    options.number("queue_count", queues);
  }
}

bool plan_memif(Options& options, std::uint32_t mtu, DriverPlan& plan, std::string& why) {
  // Of options with a word that it does not know, the driver forgets all.
  if (const std::string word = options.stranger(kMemifOptions); !word.empty()) {
    why = "net_memif has no option '" + word +
          "'; it has role, socket, socket-abstract, id, bsize, rsize, mac, "
          "secret, zero-copy, owner-uid and owner-gid";
    return false;
  }
  const std::uint32_t buffer = options.number("bsize", kMemifBuffer);
  plan.receive_slots = 1U << std::min(options.number("rsize", kRing), 14U);
  plan.room = std::max(plan.room, buffer);
  plan.mtu = std::min(mtu, buffer - std::min(buffer, std::uint32_t{RTE_ETHER_HDR_LEN}));
  plan.memif = true;
  if (options.get("zero-copy") == "yes") plan.copies = plan.reaches_memory = false;
  const std::string_view role = options.get("role");
  plan.memif_client = role != "server" && role != "master";
  const std::string socket(options.get("socket"));
  plan.socket = (options.get("socket-abstract") == "no" ? "" : "@") + (socket.empty() ? kMemifSocket : socket);
  plan.needs = "; role is server or client, and socket=NAME has one server: another role or name may do";
  plan.link_needs = "the other end, with the other role, the same socket= and the same id=";
  if (options.get("socket-abstract") == "no" && !options.get("socket").empty()) {
    why = soft::refuse_socket_file(std::string(options.get("socket")),
                                   plan.memif_client ? soft::SocketUse::kConnect : soft::SocketUse::kListen);
  }
  return why.empty();
}

bool plan_vhost_user(Options& options, std::string_view path, bool listens, DriverPlan& plan, std::string& why) {
  const std::string file(options.get(path));
  if (file.empty()) {
    why = options.name() + " needs " + std::string(path) + "=SOCKET, the name of a socket of vhost-user";
    return false;
  }
  plan.link_needs = listens ? "the other end: a virtual machine, or net_virtio_user with path= this socket"
                            : "the other end, which listens on this socket (net_vhost with iface= it)";
  if (!file.starts_with("/dev/")) {
    why = soft::refuse_socket_file(file, listens ? soft::SocketUse::kListen : soft::SocketUse::kConnect);
    if (why.empty() && !listens && ::access(file.c_str(), F_OK) != 0) {
      why = "there is no socket " + file + "; start the other end first (net_vhost with iface=" + file + ")";
    }
  }
  return why.empty();
}

// Over an interface of the kernel's.
bool bind_interface(const Options& options, DriverPlan& plan, std::string& why) {
  const std::string name(options.get("iface"));
  plan.interface = name;
  plan.mtu = name.empty() ? 0 : std::min(plan.mtu, HostInterface(name).mtu());
  if (name.empty()) why = options.name() + " needs iface=INTERFACE";
  if (why.empty() && plan.mtu == 0) {
    why = "there is no network interface '" + name + "' in this network namespace; `ip link` lists those there are";
  }
  plan.link_needs = "its interface up, and that of its other end: ip link set " + name + " up";
  return why.empty();
}

bool plan_af_packet(Options& options, DriverPlan& plan, std::string& why) {
  const std::uint32_t room = options.number("framesz", kPacketFrame);
  options.number("blocksz", 65536);
  options.number("framecnt", 512);
  plan.mtu = std::min(plan.mtu, room - std::min(room, kPacketHeader + RTE_ETHER_HDR_LEN));
  plan.room = std::max(plan.room, room);
  plan.needs = "; it takes CAP_NET_RAW, which everybody has in a namespace of their own (unshare -Urn)";
  return bind_interface(options, plan, why);
}

bool plan_af_xdp(Options& options, DriverPlan& plan, std::string& why) {
  plan.mtu = std::min(plan.mtu, kXdpMtu);
  plan.room = kXdpRoom;
  plan.needs = "; it takes CAP_NET_ADMIN, CAP_BPF and locked memory (ulimit -l 16384, or CAP_IPC_LOCK)";
  return bind_interface(options, plan, why);
}

bool plan_particulars(Options& options, std::uint32_t mtu, DriverPlan& plan, std::string& why) {
  const std::string& driver = plan.driver;
  if (driver == "net_ring") {
    why = "net_ring hands packet buffers from one port to another, and softroce's ports share none; use net_memif";
    return false;
  }
  plan.waits = driver == "net_memif" || driver == "net_vhost" || driver == "net_virtio_user";
  if (driver == "net_memif") return plan_memif(options, mtu, plan, why);
  if (driver == "net_vhost") return plan_vhost_user(options, "iface", options.get("client") != "1", plan, why);
  if (driver == "net_virtio_user") return plan_vhost_user(options, "path", options.get("server") == "1", plan, why);
  if (driver == "net_tap") {
    plan.needs = "; it takes CAP_NET_ADMIN and /dev/net/tun";
    plan.link_needs = "its interface up: ip link set ... up";
  }
  const bool packet = driver == "net_af_packet" || driver == "eth_af_packet";
  if (!packet && driver != "net_af_xdp") return true;
  plan.mtu = mtu;
  return packet ? plan_af_packet(options, plan, why) : plan_af_xdp(options, plan, why);
}

}  // namespace

std::optional<DriverPlan> plan_driver(std::string_view devargs, std::uint32_t mtu, std::uint16_t queues,
                                      std::string& why) {
  Options options(devargs);
  DriverPlan plan;
  plan.name = options.name();
  plan.queues = queues;
  plan.room = std::max(mtu + RTE_ETHER_HDR_LEN, kMemifBuffer);
  if (plan.name.find(':') == std::string::npos) plan.driver = without_number(plan.name);
  plan.copies = std::ranges::find(kCopying, plan.driver) != kCopying.end();
  plan.reaches_memory = plan.driver != "net_virtio_user";
  if (!plan_particulars(options, mtu, plan, why)) return std::nullopt;
  if (queues > 1) ask_for_queues(plan.driver, queues, options);
  plan.device = options.join();
  return plan;
}

std::string package_of(std::string_view driver) {
  std::string package = "librte-" + library_of(driver) + std::to_string(kAbi);
  std::replace(package.begin(), package.end(), '_', '-');
  return package;
}

bool driver_loaded(std::string_view driver) {
  const std::string library = "librte_" + library_of(driver) + ".so." + std::to_string(kAbi);
  void* handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

}  // namespace fairlead::dpdk
