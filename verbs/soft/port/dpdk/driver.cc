#include "verbs/soft/port/dpdk/driver.h"

#include <dlfcn.h>
#include <net/if.h>
#include <rte_ether.h>
#include <rte_version.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace fairlead::dpdk {
namespace {

// ABI 23 belongs to 22.11: the last two digits of the year in which the next ABI begins.
constexpr int kAbi = RTE_VER_YEAR + (RTE_VER_MONTH == 11 ? 1 : 0);
constexpr std::uint32_t kMemifBuffer = 4352;
constexpr std::uint32_t kRing = 8;              // log2 of memif's slots: together they fit a core's cache
constexpr std::uint32_t kXdpRoom = 3840 - 128;  // af_xdp: with headers a page; another drops all frames
constexpr std::uint32_t kXdpMtu = 3490;
constexpr std::uint32_t kPacketFrame = 8192;  // af_packet: of its rings
constexpr std::uint32_t kPacketHeader = 96;   // of which the kernel takes

constexpr std::array<std::string_view, 11> kMemifOptions = {
    "role", "socket", "socket-abstract", "id",        "bsize",    "rsize",
    "mac",  "secret", "zero-copy",       "owner-uid", "owner-gid"};

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

std::uint32_t interface_mtu(std::string_view interface) {
  ifreq request{};
  interface.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = fd >= 0 && ::ioctl(fd, SIOCGIFMTU, &request) == 0;
  if (fd >= 0) ::close(fd);
  return known ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

std::string library_of(std::string_view driver) {
  std::string name(driver);
  if (name == "net_virtio_user") name = "net_virtio";
  if (name == "net_tun") name = "net_tap";
  return name;
}

// The MTU of the interface that the device is bound to; 0 with the reason where there is none.
std::uint32_t bound_mtu(const Options& options, std::string& why) {
  const std::string_view interface = options.get("iface");
  const std::uint32_t mtu = interface.empty() ? 0 : interface_mtu(interface);
  if (mtu == 0) {
    why = interface.empty() ? options.name() + " needs iface=INTERFACE"
                            : "there is no network interface '" + std::string(interface) + "' in this namespace";
  }
  return mtu;
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

}  // namespace

std::optional<DriverPlan> plan_driver(std::string_view devargs, std::uint32_t mtu, std::uint16_t queues,
                                      std::string& why) {
  Options options(devargs);
  DriverPlan plan;
  plan.name = options.name();
  plan.queues = queues;
  const std::uint32_t frame = mtu + RTE_ETHER_HDR_LEN;
  plan.room = std::max(frame, kMemifBuffer);
  if (plan.name.find(':') == std::string::npos) plan.driver = without_number(plan.name);
  plan.waits = plan.driver == "net_memif" || plan.driver == "net_vhost" || plan.driver == "net_virtio_user";
  if (plan.driver == "net_ring") {
    why = "net_ring hands packet buffers from one port to another, and softroce's ports share none; use net_memif";
    return std::nullopt;
  }
  if (plan.driver == "net_memif") {
    // Of options with a word that it does not know, the driver forgets all.
    if (const std::string word = options.stranger(kMemifOptions); !word.empty()) {
      why = "net_memif has no option '" + word +
            "'; it has role, socket, socket-abstract, id, bsize, rsize, mac, "
            "secret, zero-copy, owner-uid and owner-gid";
      return std::nullopt;
    }
    const std::uint32_t buffer = options.number("bsize", kMemifBuffer);
    plan.receive_slots = 1U << std::min(options.number("rsize", kRing), 14U);
    plan.room = std::max(plan.room, buffer);
    plan.mtu = std::min(mtu, buffer - std::min(buffer, std::uint32_t{RTE_ETHER_HDR_LEN}));
    plan.memif = true;
    plan.memif_client = options.get("role") != "server" && options.get("role") != "master";
  } else if (plan.driver == "net_af_packet" || plan.driver == "eth_af_packet") {
    const std::uint32_t room = options.number("framesz", kPacketFrame);
    options.number("blocksz", 65536);
    options.number("framecnt", 512);
    const std::uint32_t interface = bound_mtu(options, why);
    if (interface == 0) return std::nullopt;
    plan.mtu = std::min({mtu, interface, room - std::min(room, kPacketHeader + RTE_ETHER_HDR_LEN)});
    plan.room = std::max(plan.room, room);
    plan.needs = "; it takes CAP_NET_RAW, which everybody has in a namespace of their own (unshare -Urn)";
  } else if (plan.driver == "net_af_xdp") {
    const std::uint32_t interface = bound_mtu(options, why);
    if (interface == 0) return std::nullopt;
    plan.mtu = std::min({mtu, interface, kXdpMtu});
    plan.room = kXdpRoom;
    plan.needs = "; it takes CAP_NET_ADMIN, CAP_BPF and locked memory (ulimit -l 16384, or CAP_IPC_LOCK)";
  }
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
