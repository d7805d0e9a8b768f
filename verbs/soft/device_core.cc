#include "verbs/soft/device_core.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "verbs/soft/port/udp_port.h"

namespace fairlead::soft {
namespace {

// Never destroyed: a device that a program leaves open at exit is watched to the end.
const Clock& steady_clock() {
  static const Clock& clock = *new SteadyClock;
  return clock;
}

std::uint64_t random64() noexcept {
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Result<Gid> parse_address(const std::string& text) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, text.c_str(), &parsed) != 1) {
    return {Code::kInvalidArgument,
            fmt::format("softroce address '{}' is no IPv4 address; give one of this host, such as 127.0.0.7", text)};
  }
  return Gid::from_ipv4(ntohl(parsed.s_addr));
}

std::uint64_t random_guid() noexcept { return (random64() & ~(std::uint64_t{1} << 56)) | std::uint64_t{2} << 56; }

Result<std::shared_ptr<DeviceCore>> DeviceCore::open(const DeviceConfig& config, std::uint64_t guid) {
  auto spec = parse_port_spec(config.packet_io);
  if (!spec) return spec.error();
  const std::string mode = environment("FAIRLEAD_SOFT_CONGESTION");
  const auto congestion = parse_congestion_mode(mode.empty() ? "auto" : mode);
  if (!congestion) return congestion.error();
  Gid own;
  std::unique_ptr<UdpPort> port;
  std::optional<std::uint8_t> partition;
  if (config.address.empty()) {
    auto bound = bind_free_loopback(own);
    if (!bound) return bound.error();
    port = std::make_unique<UdpPort>(own, std::move(*bound));
  } else {
    auto parsed = parse_address(config.address);
    if (!parsed) return parsed.error();
    own = *parsed;
    auto place = SharedAddress::join(own);
    if (!place) return place.error();
    partition = (*place)->member();
    port = std::make_unique<UdpPort>(own, std::move(*place));
  }
  if (port->max_mtu() == 0) {
    return {Code::kUnavailable,
            fmt::format("the interface of {} is too small for any RoCE path MTU; raise its MTU to 320 or more",
                        to_string(own))};
  }
  if (spec->pcap.empty()) spec->pcap = environment("FAIRLEAD_PCAP");
  auto decorated = decorate(std::move(port), *spec);
  if (!decorated) return decorated.error();
  auto core = std::make_shared<DeviceCore>(steady_clock(), std::move(*decorated), guid);
  if (partition) core->domain_.set_partition(*partition);
  core->port_spec_ = *spec;
  core->congestion_ = *congestion;
  core->gids_[1].port->congestion = choose_congestion(*congestion, core->gids_[1].address);
  core->domain_.counter_page.publish(config.name, to_string(own));
  core->watcher_ = std::make_unique<Watcher>(core->domain_);
  return core;
}

DeviceCore::DeviceCore(const Clock& clock, std::unique_ptr<PacketPort> port, std::uint64_t guid)
    : guid_(guid), domain_(clock, random64()) {
  list_gids(port->address());
  gids_[1].port = &domain_.add_port(std::move(port));
}

DeviceCore::~DeviceCore() = default;

void DeviceCore::list_gids(const Gid& own) {
  Gid link_local;
  link_local.bytes[0] = 0xfe;
  link_local.bytes[1] = 0x80;
  for (unsigned i = 0; i < 8; ++i) link_local.bytes[8 + i] = static_cast<std::uint8_t>(guid_ >> (56 - 8 * i));
  InterfaceAddress own_address = interface_of(own);
  gids_.push_back({{link_local, own_address.interface, own_address.index, own_address.mtu, own_address.loopback}});
  gids_.push_back({std::move(own_address)});
  for (InterfaceAddress& address : host_addresses()) {
    if (address.loopback || address.gid == own || gids_.size() == kGidTableLength) continue;
    gids_.push_back({std::move(address)});
  }
}

void DeviceCore::watch() {
  if (watcher_) watcher_->start();
}

ibv_gid_entry DeviceCore::gid(std::uint32_t index) const noexcept {
  ibv_gid_entry entry{};
  if (index < gids_.size()) {
    entry = {gids_[index].address.gid.to_verbs(), index, 1, IBV_GID_TYPE_ROCE_V2, gids_[index].address.index};
  }
  return entry;
}

std::optional<std::uint32_t> DeviceCore::find_gid(const Gid& gid) const noexcept {
  for (std::uint32_t index = 0; index < gids_.size(); ++index) {
    if (gids_[index].address.gid == gid) return index;
  }
  return std::nullopt;
}

Result<PortSlot*> DeviceCore::port_of_gid(std::uint32_t index) {
  if (index >= gids_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("sgid_index {} is empty; this device has GIDs 0..{}", index, gids_.size() - 1)};
  }
  GidSlot& slot = gids_[index];
  if (slot.port != nullptr) return slot.port;
  if (!slot.address.gid.is_ipv4()) {
    return {Code::kInvalidArgument,
            fmt::format("sgid_index {} is {}, which no socket can send from; use index 1 or another IPv4-mapped GID",
                        index, to_string(slot.address.gid))};
  }
  auto socket = bind_roce_port(slot.address.gid, PortUse::kReceive);
  if (!socket) return socket.error();
  auto decorated = decorate(std::make_unique<UdpPort>(slot.address.gid, std::move(*socket)), port_spec_);
  if (!decorated) return decorated.error();
  slot.port = &domain_.add_port(std::move(*decorated));
  slot.port->congestion = choose_congestion(congestion_, slot.address);
  domain_.wake_watcher();
  return slot.port;
}

std::uint32_t DeviceCore::largest_mtu() const noexcept { return largest_path_mtu(gids_[1].address.mtu); }

}  // namespace fairlead::soft
