#include "bench/gain/terms.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/system/system_files.h"
#include "bench/base/sizes.h"
#include "bench/net/interface.h"
#include "fairlead/softroce.h"

namespace fairlead::bench {
namespace {

constexpr std::uint32_t kLargestFrame = 9216;     // that Ethernet carries, in common practice
constexpr std::uint32_t kTcpHeaders = 52;         // IPv4 and TCP with timestamps
constexpr std::uint32_t kRoceHeaders = 60;        // IPv4, UDP, BTH, RETH, ICRC
constexpr std::uint64_t kEnoughBuffer = 1 << 20;  // bytes in flight that no link of the comparison needs more than
constexpr std::array<std::uint32_t, 5> kPathMtus = {4096, 2048, 1024, 512, 256};
constexpr std::string_view kMemory = "memory of this host";
constexpr std::string_view kVerbs = "verbs:";
constexpr std::string_view kSocketsAlone = "udp,local=sockets";

/// Whether this process's device has sent anything, and nothing by memory: the other end could not be met there.
bool sends_by_sockets_alone(std::string_view device) {
  std::uint64_t sent = 0, by_memory = 0;
  for (const SoftroceDevice& each : softroce_devices()) {
    if (each.process != static_cast<std::uint32_t>(::getpid()) || each.name != device) continue;
    for (const auto& [name, value] : each.counters) {
      sent += name == "sent_pkts" ? value : 0;
      by_memory += name == "sent_by_memory" ? value : 0;
    }
  }
  return sent != 0 && by_memory == 0;
}

std::uint32_t largest_path_mtu(std::uint32_t link_mtu) {
  for (const std::uint32_t mtu : kPathMtus) {
    if (mtu + kRoceHeaders <= link_mtu) return mtu;
  }
  return 0;
}

std::string without_port(std::string_view word) {
  if (word.starts_with('[')) return std::string(word.substr(1, word.find(']') - 1));
  const std::size_t colon = word.rfind(':');
  if (colon != word.npos && word.find(':') == colon) word = word.substr(0, colon);
  return std::string(word);
}

std::string option_of(std::string_view words, std::string_view name) {
  const std::size_t at = words.find(name);
  if (at == words.npos) return {};
  const std::string_view rest = words.substr(at + name.size());
  return std::string(rest.substr(0, rest.find_first_of(",)")));
}

bool is_soft(const SideFacts& side) { return side.transport.starts_with("verbs:soft"); }
bool is_tcp(const SideFacts& side) { return side.transport == "tcp"; }

// QEMU's pvrdma plays VMware's device: what it costs says nothing of that.
bool is_emulated(std::string_view transport) {
  if (!transport.starts_with(kVerbs)) return false;
  const SystemFiles files;
  const std::string device = fmt::format("/sys/class/infiniband/{}/device/driver", transport.substr(kVerbs.size()));
  if (files.link_name(device) != "vmw_pvrdma") return false;
  return files.line("/sys/class/dmi/id/sys_vendor").value_or("").find("VMware") == std::string::npos;
}

// The kernel's software devices have a NIC below them, and no hardware of their own.
bool is_kernel_software(std::string_view transport) {
  if (!transport.starts_with(kVerbs)) return false;
  const std::string_view name = transport.substr(kVerbs.size());
  return name.starts_with("rxe") || name.starts_with("siw") ||
         SystemFiles().exists(fmt::format("/sys/class/infiniband/{}/parent", name));
}

void find_link(SideFacts& side, std::string_view packet_io) {
  if (side.transport == "shm") {
    side.link = kMemory;
    return;
  }
  std::string interface;
  if (is_soft(side) && !packet_io.starts_with("udp")) {
    interface = option_of(packet_io, ",iface=");
    if (interface.empty() || interface.find('/') != interface.npos) {  // shared memory: no interface at all
      side.link = packet_io;
      return;
    }
    side.link = interface;
    return;
  }
  const bool sockets_alone = !is_soft(side) || option_of(packet_io, ",local=") == "sockets" ||
                             sends_by_sockets_alone(std::string_view(side.transport).substr(kVerbs.size()));
  if (!sockets_alone && interface_with(side.remote)) {  // softroce's packets within one host cross memory
    side.link = kMemory;
    return;
  }
  const std::optional<InterfaceFacts> facts = interface_with(side.local);
  if (!facts) return;
  side.link = facts->name;
  side.link_mtu = facts->mtu;
  side.megabits = facts->megabits;
  if (is_soft(side) && packet_io != "udp" && packet_io != kSocketsAlone)
    side.link += fmt::format(" with {}", packet_io);
  if (is_tcp(side) && facts->mtu > kTcpHeaders) side.payload = facts->mtu - kTcpHeaders;
}

std::string buffer_text(std::optional<std::uint64_t> bytes) {
  if (!bytes) return "none";
  return *bytes == 0 ? "not known" : format_bytes(*bytes);
}
std::string known(const std::string& text) { return text.empty() ? "not known" : text; }
std::string known(std::uint64_t number) { return number == 0 ? "not known" : fmt::format("{}", number); }

class Terms {
 public:
  Terms(const SideFacts& baseline, const SideFacts& candidate) : a_(baseline), b_(candidate) {}

  void add(std::string name, std::string baseline, std::string candidate, bool equal, std::string remark = {}) {
    list_.push_back({std::move(name), std::move(baseline), std::move(candidate), equal, std::move(remark)});
  }

  void hosts() {
    const auto text = [](const SideFacts& side) {
      return fmt::format("{} process {} to {} process {}", known(side.initiator.host.name), side.initiator.process,
                         known(side.target.host.name), side.target.process);
    };
    const bool known_hosts = !a_.target.host.boot.empty() && !b_.target.host.boot.empty();
    add("hosts", text(a_), text(b_),
        known_hosts && a_.initiator.process == b_.initiator.process && a_.target.process == b_.target.process &&
            a_.target.host.boot == b_.target.host.boot,
        known_hosts ? "" : "whether it is one host is not known: a target's boot id could not be read");
  }

  void link() {
    const bool over_loopback = a_.link == b_.link && a_.link == "lo";
    const bool equal = !a_.link.empty() && a_.link == b_.link && (over_loopback || a_.remote == b_.remote);
    const auto text = [](const SideFacts& side) {
      return side.link == kMemory || side.remote.empty() ? known(side.link)
                                                         : fmt::format("{} to {}", known(side.link), side.remote);
    };
    add("link", text(a_), text(b_), equal,
        equal ? std::string()
              : fmt::format("data does not take the same link, so a ratio says what the links are: {} and {}",
                            known(a_.link), known(b_.link)));
    add("link MTU", known(a_.link_mtu), known(b_.link_mtu), a_.link_mtu == b_.link_mtu);
    const auto rate = [](const SideFacts& side) {
      return side.megabits ? fmt::format("{} Mbit/s", *side.megabits) : "it does not say";
    };
    add("link rate", rate(a_), rate(b_), a_.megabits == b_.megabits,
        a_.megabits ? "as the interface says; of veth it is no limit" : "");
  }

  void packets() {
    const auto fits = [](const SideFacts& side) {
      return is_tcp(side) || (side.payload != 0 && side.payload >= largest_path_mtu(side.link_mtu));
    };
    std::string remark;
    bool equal = a_.payload != 0 && a_.payload == b_.payload;
    if (!equal && a_.payload != 0 && b_.payload != 0 && a_.link_mtu == b_.link_mtu) {
      equal = a_.link_mtu <= kLargestFrame && fits(a_) && fits(b_);
      if (a_.link_mtu > kLargestFrame) {
        remark = fmt::format(
            "a link MTU of {} is none that a network has, and RoCE's packets carry at most 4096: set it to "
            "9000 (ip link set {} mtu 9000)",
            a_.link_mtu, a_.link);
      } else {
        remark = equal ? "each the most that its protocol has for this link MTU"
                       : "a path MTU below what the link has room for: --mtu 0 takes the largest";
      }
    }
    add("payload of a packet", known(a_.payload), known(b_.payload), equal || a_.link == kMemory, remark);
  }

  void buffers() {
    const bool device = !a_.buffer || !b_.buffer;  // one of them has no sockets
    const std::uint64_t least = std::min(
        {a_.buffer.value_or(0), b_.buffer.value_or(0), a_.target_buffer.value_or(0), b_.target_buffer.value_or(0)});
    const bool equal = least != 0 && a_.buffer == b_.buffer && a_.target_buffer == b_.target_buffer;
    const auto text = [](const SideFacts& side) {
      return fmt::format("{} here, {} there", buffer_text(side.buffer), buffer_text(side.target_buffer));
    };
    std::string remark;
    if (!device && least == 0) {
      remark = "what a receiving socket may hold could not be read at each end";
    } else if (!equal && !device) {
      remark = least >= kEnoughBuffer
                   ? "different, and enough on both sides"
                   : fmt::format(
                         "what a receiving socket may hold: sysctl -w net.core.rmem_max={} at both ends gives softroce "
                         "enough, or --socket-buffer 208K gives tcp as little",
                         kEnoughBuffer);
    }
    add("socket buffers", text(a_), text(b_), equal || device || least >= kEnoughBuffer, remark);
  }

  void processors() {
    const auto end = [](const EndFacts& facts) {
      return fmt::format("{} of {} cores{}", facts.host.usable, facts.host.cores,
                         facts.host.quota > 0 ? fmt::format(", a budget of {:g}", facts.host.quota) : ", no budget");
    };
    const auto text = [&end](const SideFacts& side) {
      return fmt::format("{} here; {} there", end(side.initiator), end(side.target));
    };
    add("cores and budget", text(a_), text(b_), text(a_) == text(b_), on_one_host(a_) ? "both ends share them" : "");
    add("lanes", fmt::format("{} here, {} there", a_.initiator.lanes, a_.target.lanes),
        fmt::format("{} here, {} there", b_.initiator.lanes, b_.target.lanes),
        a_.initiator.lanes == b_.initiator.lanes && a_.target.lanes == b_.target.lanes);
  }

  // Each transport has its own by nature. That TCP's paces is worth knowing: over a fast link it costs it much.
  void congestion_control() {
    const auto text = [](const SideFacts& side) {
      return is_tcp(side) ? known(side.congestion_control) : std::string("its own");
    };
    const bool paced = a_.congestion_control == "bbr" || b_.congestion_control == "bbr";
    add("congestion control", text(a_), text(b_), is_tcp(a_) != is_tcp(b_) || text(a_) == text(b_),
        paced
            ? "bbr paces packets, as this system has it; sysctl -w net.ipv4.tcp_congestion_control=cubic at both ends "
              "shows TCP without"
            : "");
  }

  void device() {
    const auto text = [](const SideFacts& side) {
      return fmt::format("{}{}", known(side.transport),
                         side.emulated   ? ", emulated"
                         : side.software ? ", in software"
                                         : "");
    };
    const bool emulated = a_.emulated || b_.emulated;
    const SideFacts& software = b_.software ? b_ : a_;
    add("device", text(a_), text(b_), !emulated,
        emulated            ? "PVRDMA that an emulator plays: what it costs says nothing of the real device"
        : software.software ? fmt::format("what {} does is the processors' work; a NIC would do it itself",
                                          is_soft(software) ? "softroce" : software.transport)
                            : "");
  }

  [[nodiscard]] std::vector<Term> take() { return std::move(list_); }

 private:
  const SideFacts& a_;
  const SideFacts& b_;
  std::vector<Term> list_;
};

}  // namespace

bool on_one_host(const SideFacts& side) noexcept {
  return !side.initiator.host.boot.empty() && side.initiator.host.boot == side.target.host.boot;
}

PathFacts parse_path(std::string_view explained) {
  PathFacts facts;
  const std::size_t arrow = explained.find(" -> ");
  if (arrow == explained.npos) return facts;
  // "verbs:soft0 10.0.0.1 qpn 0x11 -> 10.0.0.2 qpn 0x12, mtu 4096" or "tcp 10.0.0.1:5 -> 10.0.0.2:6, depth 256,
  // congestion control cubic"
  std::vector<std::string> before = split_blanks(explained.substr(0, arrow));
  const std::vector<std::string> after = split_blanks(explained.substr(arrow + 4));
  const auto qpn = std::find(before.begin(), before.end(), "qpn");
  before.erase(qpn, before.end());
  if (before.empty() || after.empty()) return facts;
  std::string far = after.front();
  if (far.ends_with(',')) far.pop_back();
  facts.local = without_port(before.back());
  facts.remote = without_port(far);
  const std::string mtu = option_of(explained.substr(arrow), ", mtu ");
  facts.congestion_control = option_of(explained.substr(arrow), ", congestion control ");
  facts.mtu = static_cast<std::uint32_t>(leading_number(mtu).value_or(0));
  return facts;
}

SideFacts side_facts(const Peer& peer, const std::string& device, const EngineConfig& config, const EndFacts& initiator,
                     const EndFacts& target) {
  SideFacts side;
  side.transport = peer.transport();
  side.device = device;
  side.path = peer.explain();
  const PathFacts path = parse_path(side.path);
  side.local = path.local;
  side.remote = path.remote;
  side.payload = path.mtu;
  side.congestion_control = path.congestion_control;
  side.streams = config.paths;
  side.dscp = is_tcp(side) || side.transport == "shm" ? 0 : static_cast<unsigned>(config.verbs.traffic_class >> 2);
  side.emulated = is_emulated(side.transport);
  side.software = is_soft(side) || is_kernel_software(side.transport);
  side.initiator = initiator;
  side.target = target;
  if (is_tcp(side)) {
    side.buffer = initiator.tcp_buffer;
    side.target_buffer = target.tcp_buffer;
  } else if (is_soft(side) && config.verbs.packet_io.starts_with("udp")) {
    side.buffer = initiator.udp_buffer;
    side.target_buffer = target.udp_buffer;
  }
  find_link(side, config.verbs.packet_io);
  return side;
}

std::vector<Term> terms_of(const SideFacts& baseline, const SideFacts& candidate) {
  Terms terms(baseline, candidate);
  terms.hosts();
  terms.link();
  terms.packets();
  terms.buffers();
  terms.processors();
  terms.add("streams", fmt::format("{}", baseline.streams), fmt::format("{}", candidate.streams),
            baseline.streams == candidate.streams);
  terms.add("DSCP", fmt::format("{}", baseline.dscp), fmt::format("{}", candidate.dscp),
            baseline.dscp == candidate.dscp,
            baseline.dscp == candidate.dscp ? "" : "packets may be queued apart: --traffic-class 0");
  terms.congestion_control();
  terms.device();
  return terms.take();
}

std::vector<Term> terms_of(const SideFacts& baseline, const SideFacts& candidate, const GainPlan& plan) {
  std::vector<Term> terms = terms_of(baseline, candidate);
  std::string sizes;
  for (const std::uint64_t size : plan.load.sizes) sizes += (sizes.empty() ? "" : ", ") + format_size(size);
  terms.push_back(
      same_term("operation", fmt::format("{} of {}, {} under way", to_string(plan.load.op), sizes, plan.load.depth)));
  const std::string& theirs = baseline.target.memory;  // of both sides: they have one target
  terms.push_back(same_term("memory", fmt::format("{} bytes at each end: {} here, {} there", plan.load.footprint,
                                                  to_string(plan.load.memory), theirs.empty() ? "unknown" : theirs)));
  terms.push_back(same_term("blocks", fmt::format("{:g} s each, in turn", plan.block)));
  return terms;
}

Term same_term(std::string name, const std::string& value) { return {std::move(name), value, value, true, {}}; }

bool all_equal(const std::vector<Term>& terms) noexcept {
  return std::ranges::all_of(terms, [](const Term& term) { return term.equal; });
}

}  // namespace fairlead::bench
