#include "verbs/soft/port/port_spec.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "verbs/soft/port/dpdk/dpdk_module.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/port/memif/memif_device.h"
#include "verbs/soft/port/wrap/pcap_port.h"

namespace fairlead::soft {
namespace {

enum Port : unsigned char { kUdp = 1, kMemif = 2, kDpdk = 4, kOwnWire = kMemif | kDpdk, kAny = kUdp | kOwnWire };

// A word and what it takes.
struct Word {
  std::string_view key, value;
  unsigned char ports = kAny;  // that have it
};
constexpr std::array kWords = {
    Word{"drop", "a probability from 0 to 1"},
    Word{"reorder", "a probability from 0 to 1"},
    Word{"duplicate", "a probability from 0 to 1"},
    Word{"corrupt", "a probability from 0 to 1"},
    Word{"burst", "a number of packets from 1"},
    Word{"delay_us", "a number of microseconds"},
    Word{"seed", "a number"},
    Word{"silent_after", "a number of packets"},
    Word{"silent_ms", "a number of milliseconds"},
    Word{"pcap", "the name of a file"},
    Word{"local", "memory or sockets", kUdp},
    Word{"refer", "off, or a number of bytes from 1", kUdp},
    Word{"receive_buffer", "a number of bytes from 4096 to 1073741824", kUdp},
    Word{"ip", "an address of one station, not the loopback's, and perhaps its network's bits: 10.0.0.1/24", kOwnWire},
    Word{"gateway", "an address of one station: 10.0.0.254", kOwnWire},
    Word{"role", "server or client", kMemif},
    Word{"socket", "a name, or a file's with a slash in it", kMemif},
    Word{"id", "a number", kMemif},
    Word{"secret", "at most 23 characters", kMemif},
    Word{"slots", "a power of two from 16 to 16384", kMemif},
    Word{"memory", "a number of megabytes from 1", kDpdk},
    Word{"queues", "a number from 1 to 16", kDpdk},
    Word{"transmit", "copy or zero-copy", kDpdk},
};
constexpr std::string_view kDpdkName = "dpdk:";
constexpr std::array<std::string_view, 4> kShortNames = {"memif", "vhost", "af_packet", "af_xdp"};

Status refuse_port(std::string_view name) {
  return {Code::kInvalidArgument,
          fmt::format("packet_io: there is no packet port '{}'; legal: udp, memif or dpdk:DEVICE "
                      "(dpdk:net_memif0), then options WORD=VALUE, all with commas between",
                      name)};
}

// A word without a value, with a wrong one, or of another port.
Status refuse(std::string_view word, Port port) {
  const std::string_view key = word.substr(0, word.find('='));
  std::string why;
  std::string words;
  for (const Word& known : kWords) {
    if ((known.ports & port) == 0) continue;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", known.key);
    if (known.key == key) why = fmt::format("{} takes {}", key, known.value);
  }
  if (why.empty()) {
    why = port == kDpdk ? "it has no value (WORD=VALUE)"
                        : fmt::format("legal: {}, then any of {}, each =VALUE", port == kUdp ? "udp" : "memif", words);
  }
  return {Code::kInvalidArgument, fmt::format("packet_io: '{}' is wrong: {}", word, why)};
}

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_probability(std::string_view text, double& value) {
  return parse_number(text, value) && value >= 0 && value <= 1;
}

bool parse_address(const std::string& text, Gid& value) {
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    value = Gid::from_ipv4(ntohl(v4.s_addr));
    return value.ipv4() != 0 && value.ipv4() >> 28 < 0xe;  // not of a group
  }
  return ::inet_pton(AF_INET6, text.c_str(), value.bytes.data()) == 1 && !value.is_null() && value.bytes[0] != 0xff;
}

bool parse_network(std::string_view text, FramePortConfig& config) {
  const std::size_t slash = text.find('/');
  if (!parse_address(std::string(text.substr(0, slash)), config.address)) return false;
  if (config.address.is_loopback()) return false;
  const unsigned most = config.address.is_ipv4() ? 32 : 128;
  config.prefix = config.address.is_ipv4() ? 24 : 64;
  return slash == std::string_view::npos ||
         (parse_number(text.substr(slash + 1), config.prefix) && config.prefix <= most);
}

// Words for a port that owns its wire; nothing where the word is none of them.
std::optional<bool> apply(std::string_view key, std::string_view value, FramePortConfig& addresses) {
  if (key == "ip") return parse_network(value, addresses);
  if (key == "gateway") return parse_address(std::string(value), addresses.gateway);
  return std::nullopt;
}

std::optional<bool> apply(std::string_view key, std::string_view value, MemifSpec& spec) {
  memif::LinkSettings& link = spec.link;
  if (key == "role") {
    link.role = value == "server" ? memif::Role::kMaster : memif::Role::kSlave;
    return value == "server" || value == "client";
  }
  if (key == "socket") return !(link.socket = value).empty();
  if (key == "id") return parse_number(value, link.wire.interface);
  if (key == "secret") return (link.wire.secret = value).size() < memif::kMostSecretBytes;
  std::uint32_t slots = 0;
  if (key == "slots") {
    if (!parse_number(value, slots) || !std::has_single_bit(slots) || slots < 16) return false;
    link.wire.log2_slots = static_cast<unsigned>(std::countr_zero(slots));
    return link.wire.log2_slots <= memif::kMostLog2Slots;
  }
  return std::nullopt;
}

std::optional<bool> apply(std::string_view key, std::string_view value, DpdkSpec& spec) {
  if (key == "transmit") return (spec.zero_copy = value == "zero-copy") || value == "copy";
  if (key == "memory") return parse_number(value, spec.megabytes) && spec.megabytes > 0;
  if (key == "queues") return parse_number(value, spec.queues) && spec.queues > 0 && spec.queues <= kMostLanes;
  return std::nullopt;
}

std::optional<bool> apply(std::string_view key, std::string_view value, PortSpec& spec) {
  FaultConfig& faults = spec.faults;
  if (key == "local" && !spec.owns_wire()) return (spec.local_memory = value == "memory") || value == "sockets";
  if (key == "refer" && !spec.owns_wire()) {
    if (value == "off") return (spec.least_referred = 0, true);
    return parse_number(value, spec.least_referred) && spec.least_referred > 0;
  }
  if (key == "receive_buffer" && !spec.owns_wire()) {
    return parse_number(value, spec.receive_buffer) && spec.receive_buffer >= 4096 && spec.receive_buffer <= 1U << 30;
  }
  if (key == "pcap") return !(spec.pcap = value).empty();
  if (key == "burst") return parse_number(value, faults.burst) && faults.burst > 0;
  if (key == "drop") return parse_probability(value, faults.drop);
  if (key == "reorder") return parse_probability(value, faults.reorder);
  if (key == "duplicate") return parse_probability(value, faults.duplicate);
  if (key == "corrupt") return parse_probability(value, faults.corrupt);
  if (key == "seed") return parse_number(value, faults.seed);
  if (key == "silent_after") return parse_number(value, faults.silent_after);
  std::uint32_t time = 0;
  if (key == "delay_us") return parse_number(value, time) && (faults.delay = time * kMicrosecond, true);
  if (key == "silent_ms") return parse_number(value, time) && (faults.silent_for = time * kMillisecond, true);
  return std::nullopt;
}

}  // namespace

Result<PortSpec> parse_port_spec(std::string_view text) {
  PortSpec spec;
  const std::string_view device = text.substr(0, text.find(','));
  Port port = kUdp;
  if (device.starts_with(kDpdkName) && device.size() > kDpdkName.size()) {
    port = kDpdk;
    spec.dpdk = DpdkSpec{.devargs = std::string(device.substr(kDpdkName.size())), .addresses = {}};
  } else if (device == "memif") {
    port = kMemif;
    spec.memif.emplace();
  } else if (device != "udp") {
    return refuse_port(device);
  }
  bool has_role = false;
  text.remove_prefix(device.size());
  while (!text.empty()) {
    text.remove_prefix(1);  // the comma
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) return refuse(word, port);
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    std::optional<bool> legal = apply(key, value, spec);
    if (FramePortConfig* const addresses = spec.addresses(); !legal && addresses != nullptr) {
      legal = apply(key, value, *addresses);
    }
    if (!legal && spec.memif) legal = apply(key, value, *spec.memif);
    has_role = has_role || key == "role";
    if (!legal && spec.dpdk) legal = apply(key, value, *spec.dpdk);
    if (!legal && spec.dpdk) {
      spec.dpdk->devargs += fmt::format(",{}", word);  // the driver's
      legal = true;
    }
    if (!legal.value_or(false)) return refuse(word, port);
  }
  if (const FramePortConfig* const addresses = spec.addresses();
      addresses != nullptr && !addresses->gateway.is_null() &&
      addresses->gateway.is_ipv4() != addresses->address.is_ipv4()) {
    return {Code::kInvalidArgument, "packet_io: gateway needs ip=ADDRESS/BITS of its own family"};
  }
  if (spec.memif && (!has_role || spec.memif->link.socket.empty())) {
    return {Code::kInvalidArgument,
            "packet_io: memif alone is short for both ends of a wire, for fairlead bench --local; else name one end: "
            "memif,role=server,socket=NAME and memif,role=client,socket=NAME"};
  }
  if (!spec.dpdk) return spec;
  if (const std::string name = spec.dpdk->devargs.substr(0, spec.dpdk->devargs.find(','));
      std::ranges::find(kShortNames, name) != kShortNames.end()) {
    return {
        Code::kInvalidArgument,
        fmt::format("packet_io: dpdk:{} is short for both ends of a wire, for fairlead bench --local; else name one "
                    "end: dpdk:net_memif0,role=server,socket=NAME and dpdk:net_memif0,role=client,socket=NAME",
                    name)};
  }
  // A loan may have to be ended by stopping the port, under other lanes' hands.
  if (spec.dpdk->zero_copy && spec.dpdk->queues > 1) {
    return {Code::kInvalidArgument,
            "packet_io: transmit=zero-copy takes a port of one queue; leave out one of the two"};
  }
  return spec;
}

Result<std::unique_ptr<PacketPort>> decorate(std::unique_ptr<PacketPort> port, const PortSpec& spec) {
  if (spec.faults.any()) port = std::make_unique<FaultPort>(std::move(port), spec.faults);
  if (spec.pcap.empty()) return port;
  const auto file = PcapFile::open(spec.pcap);
  if (!file) return file.error();
  return std::unique_ptr<PacketPort>(std::make_unique<PcapPort>(std::move(port), **file));
}

namespace {

using Ports = std::vector<std::unique_ptr<PacketPort>>;

Result<Ports> open_memif_port(const MemifSpec& spec, const Clock& clock) {
  auto device = memif::MemifDevice::open(spec.link);
  if (!device) return device.error();
  FramePortConfig config = spec.addresses;
  config.name = "memif,socket=" + spec.link.socket;
  Ports ports;
  ports.push_back(std::make_unique<FramePort>(std::move(*device), config, clock.now()));
  return ports;
}

Result<Ports> open_dpdk_port(const DpdkSpec& spec, const Clock& clock) {
  const bool beside_kernel = spec.devargs.starts_with("net_af_") || spec.devargs.starts_with("net_tap");
  if (const InterfaceAddress hosts = interface_of(spec.addresses.address); beside_kernel && hosts.index != 0) {
    return {Code::kInvalidArgument,
            fmt::format("packet_io dpdk: ip={} is this host's own address, on {}, for which the kernel answers too; "
                        "give the port another of the same network",
                        to_string(hosts.gid), hosts.interface)};
  }
  auto queues = open_dpdk_device(spec.devargs, spec.megabytes, spec.queues, spec.zero_copy);
  if (!queues) return queues.error();
  FramePortConfig config = spec.addresses;
  config.name = "dpdk:" + spec.devargs;
  const std::size_t frame_bytes = EthernetHeader::kBytes + queues->front()->info().mtu;
  const std::vector<Lane> lanes = Lane::make(spec.queues, frame_bytes);
  Ports ports;
  for (std::size_t i = 0; i < queues->size(); ++i) {
    const auto lane = lanes.size() > 1 ? std::optional(lanes[i]) : std::nullopt;
    ports.push_back(std::make_unique<FramePort>(std::move((*queues)[i]), config, clock.now(), lane));
  }
  if (ports.front()->max_mtu() == 0) {
    return {Code::kUnavailable,
            fmt::format("packet_io dpdk: the frames of {} are too small for any RoCE path MTU; raise "
                        "its MTU to 340 or more",
                        spec.devargs)};
  }
  return ports;
}

}  // namespace

Result<Ports> open_frame_ports(const PortSpec& spec, const Clock& clock) {
  return spec.dpdk ? open_dpdk_port(*spec.dpdk, clock) : open_memif_port(*spec.memif, clock);
}

}  // namespace fairlead::soft
