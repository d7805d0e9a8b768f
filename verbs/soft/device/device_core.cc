#include "verbs/soft/device/device_core.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/system/no_cancellation.h"
#include "base/system/random64.h"
#include "verbs/soft/memory/mr_table.h"
#include "verbs/soft/port/local/local_port.h"
#include "verbs/soft/port/local/ring.h"
#include "verbs/soft/port/udp/udp_ports.h"
#include "verbs/soft/queues/device_base.h"
#include "verbs/soft/wire/payload_source.h"

namespace fairlead::soft {

// What a packet refers to may go to segments each of which ends within a null region: each piece of one is a place.
static_assert(PayloadSource::kMostPlaces >= local::Reference::kMostBytes / MrTable::kNullBytes + kMaxSegments);
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// What the port's queue pairs begin with. Who looks at a capture is to see each message.
void begin_port(PortSlot& slot, const PortSpec& spec, CongestionMode mode, const InterfaceAddress& address) {
  slot.bundles = spec.pcap.empty();
  slot.congestion = choose_congestion(mode, address);
  if (slot.congestion) slot.port->report_traffic_class();
}

Status check_interface(const Gid& own) {
  const auto interface = find_interface(own);
  if (!interface) {
    return {
        Code::kResourceExhausted,
        fmt::format("softroce cannot look up the interface of {}: {}; raise the limit on open files (ulimit -n), or "
                    "allow sockets of AF_NETLINK",
                    to_string(own), std::strerror(errno))};
  }
  if (interface->index == 0) {
    return {Code::kNotFound, fmt::format("softroce: no interface that is up has {}; bring the interface up (ip link "
                                         "set NAME up), or choose another address with FAIRLEAD_SOFT_ADDRESS",
                                         to_string(own))};
  }
  return {};
}

local::Party party_of(const Gid& address, bool shared, const UdpPorts& ports) {
  return {address, shared ? ports.place().value_or(local::Party::kAlone) : local::Party::kAlone};
}

// What harms packets or captures them needs what is on a wire.
std::unique_ptr<PacketPort> with_memory(std::unique_ptr<PacketPort> port, const PortSpec& spec,
                                        const local::Party& self) {
  if (!spec.local_memory) return port;
  return local::LocalPort::around(
      std::move(port), self,
      {.checks = spec.faults.any() || !spec.pcap.empty(), .least_referred = spec.least_referred});
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

Result<std::shared_ptr<DeviceLanes>> DeviceCore::open_own_wire(const DeviceConfig& config, const PortSpec& spec,
                                                               std::uint64_t guid) {
  auto ports = open_frame_ports(spec, steady_clock());
  if (!ports) return ports.error();
  auto lanes = std::make_shared<DeviceLanes>();
  for (auto& port : *ports) {
    DeviceConfig lane = config;
    lane.lane = static_cast<unsigned>(lanes->size());
    auto core = finish(lane, spec, std::move(port), guid + lane.lane, std::nullopt);
    if (!core) return core.error();
    if (ports->size() > 1) (*core)->domain_.set_partition(static_cast<std::uint8_t>(lane.lane));
    lanes->push_back(std::move(*core));
  }
  // A lane that the program does not open must be looked at all the same: what is for others may come by its queue.
  for (const auto& core : *lanes) {
    if (lanes->size() > 1) core->watch();
  }
  return lanes;
}

Result<std::shared_ptr<DeviceLanes>> DeviceCore::open(const DeviceConfig& config, std::uint64_t guid) {
  auto spec = parse_port_spec(config.packet_io);
  if (!spec) return spec.error();
  if (FramePortConfig* const own = spec->addresses()) {
    if (!config.address.empty() && own->address.is_null()) {
      auto parsed = parse_address(config.address);
      if (!parsed) return parsed.error();
      own->address = *parsed;
      own->prefix = 24;
    }
    return open_own_wire(config, *spec, guid);
  }
  auto ports = std::make_unique<UdpPorts>(spec->receive_buffer);
  auto wanted = config.address.empty() ? Result<Gid>(Gid()) : parse_address(config.address);
  if (!wanted) return wanted.error();
  auto bound = config.address.empty() ? ports->bind_loopback() : ports->bind_own(*wanted);
  if (!bound) return bound.error();
  std::unique_ptr<UdpPort> port = std::move(bound->port);
  const Gid own = port->address();
  if (Status status = check_interface(own); !status.ok()) return status;
  if (port->max_mtu() == 0) {
    return {Code::kUnavailable,
            fmt::format("the interface of {} is too small for any RoCE path MTU; raise its MTU to 320 or more",
                        to_string(own))};
  }
  auto core = finish(config, *spec, std::move(port), guid, party_of(own, bound->shared, *ports));
  if (!core) return core.error();
  (*core)->own_port_->shared = bound->shared;
  // Alone at its own address, the device may have more queue pairs than others can be told from.
  if (ports->place()) (*core)->domain_.set_partition(*ports->place(), !bound->shared);
  (*core)->udp_ports_ = std::move(ports);
  auto lanes = std::make_shared<DeviceLanes>();
  lanes->push_back(std::move(*core));
  return lanes;
}

Result<std::unique_ptr<DeviceCore>> DeviceCore::finish(const DeviceConfig& config, PortSpec spec,
                                                       std::unique_ptr<PacketPort> port, std::uint64_t guid,
                                                       const std::optional<local::Party>& self) {
  const std::string mode = environment("FAIRLEAD_SOFT_CONGESTION");
  const auto congestion = parse_congestion_mode(mode.empty() ? "auto" : mode);
  if (!congestion) return congestion.error();
  const Gid own = port->address();
  if (spec.pcap.empty()) spec.pcap = environment("FAIRLEAD_PCAP");
  if (self) port = with_memory(std::move(port), spec, *self);
  auto decorated = decorate(std::move(port), spec);
  if (!decorated) return decorated.error();
  const Wire wire = self ? Wire::kHosts : Wire::kOwn;
  auto core = std::unique_ptr<DeviceCore>(new DeviceCore(steady_clock(), std::move(*decorated), guid, wire));
  core->port_spec_ = spec;
  core->congestion_ = *congestion;
  begin_port(*core->own_port_, spec, *congestion, core->gids_.at(1));
  core->domain_.counter_page.publish(device_name(config), to_string(own));
  core->watcher_ =
      std::make_unique<Watcher>(core->domain_, core->gids_.wait_fd(), [own = core.get()] { own->follow_host(); });
  return core;
}

DeviceCore::DeviceCore(const Clock& clock, std::unique_ptr<PacketPort> port, std::uint64_t guid)
    : DeviceCore(clock, std::move(port), guid, Wire::kHosts) {}

DeviceCore::DeviceCore(const Clock& clock, std::unique_ptr<PacketPort> port, std::uint64_t guid, Wire wire)
    : udp_ports_(std::make_unique<UdpPorts>()),
      guid_(guid),
      domain_(clock, random64()),
      gids_(wire == Wire::kOwn ? GidTable::of_own_wire(port->link_local(), port->address())
                               : GidTable(guid, port->address())),
      own_port_(&domain_.add_port(std::move(port))),
      own_wire_mtu_(wire == Wire::kOwn ? own_port_->port->max_mtu() : 0) {}

DeviceCore::~DeviceCore() = default;

void DeviceCore::add_listener(AsyncQueue& events) {
  const std::lock_guard lock(listeners_mutex_);
  listeners_.push_back(&events);
}

void DeviceCore::remove_listener(AsyncQueue& events) noexcept {
  if (!fork_mark_.is_mine()) return;  // a thread of the parent's may have the lock; nobody tells anything here
  const std::lock_guard lock(listeners_mutex_);
  std::erase(listeners_, &events);
}

void DeviceCore::follow_host() {
  const NoCancellation whole;
  if (!fork_mark_.is_mine() || !gids_.follow_host()) return;
  const std::lock_guard lock(listeners_mutex_);
  tell(IBV_EVENT_GID_CHANGE);
  const bool has_address = !gids_.at(1).gid.is_null();
  if (has_address != had_address_) tell(has_address ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  had_address_ = has_address;
}

void DeviceCore::tell(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  for (AsyncQueue* events : listeners_) events->push(event);
}

LinkState DeviceCore::link() noexcept {
  follow_host();
  if (gids_.at(1).gid.is_null()) return LinkState::kDown;
  const DomainLock lock(domain_);
  return own_port_->port->link();
}

void DeviceCore::watch() {
  if (watcher_) watcher_->start();
}

ibv_gid_entry DeviceCore::gid(std::uint32_t index) {
  follow_host();
  const InterfaceAddress address = gids_.at(index);
  ibv_gid_entry entry{};
  const bool v1 = gids_.version(index) == RoceVersion::kV1;
  const ibv_gid_type type = v1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
  if (!address.gid.is_null()) entry = {address.gid.to_verbs(), index, 1, type, address.index};
  return entry;
}

std::optional<std::uint32_t> DeviceCore::find_gid(const Gid& gid, RoceVersion version) {
  follow_host();
  for (std::uint32_t index = 0; index < GidTable::kLength; ++index) {
    if (gids_.at(index).gid == gid && gids_.version(index) == version) return index;
  }
  return std::nullopt;
}

Result<PortSlot*> DeviceCore::port_of_gid(std::uint32_t index) { return find_port(index, gids_.at(index)); }

Result<PortSlot*> DeviceCore::find_port(std::uint32_t index, const InterfaceAddress& address) {
  if (address.gid.is_null()) {
    return {Code::kInvalidArgument, fmt::format("sgid_index {} is empty; use 1, the device's own address", index)};
  }
  if (gids_.version(index) == RoceVersion::kV1) return own_port_;
  if (PortSlot* port = domain_.find_port(address.gid)) return port;
  if (index == 0) {
    return {Code::kInvalidArgument,
            fmt::format("sgid_index 0 is {}, which no socket can send from; use index 1", to_string(address.gid))};
  }
  return {Code::kUnavailable,
          fmt::format("sgid_index {} has become {} meanwhile; try again", index, to_string(address.gid))};
}

Status DeviceCore::bind_port(std::uint32_t index) {
  const InterfaceAddress address = gids_.at(index);
  const auto found = [&] {
    const DomainLock lock(domain_);
    return find_port(index, address).status();
  };
  if (const Status status = found(); status.code() != Code::kUnavailable) return status;
  const NoCancellation while_binding;
  const std::lock_guard one_binds(binding_);
  if (const Status status = found(); status.code() != Code::kUnavailable) return status;
  auto bound = udp_ports_->bind(address);
  if (!bound) return bound.error();
  const local::Party self = party_of(address.gid, bound->shared, *udp_ports_);
  auto decorated = decorate(with_memory(std::move(bound->port), port_spec_, self), port_spec_);
  if (!decorated) return decorated.error();
  const DomainLock lock(domain_);
  PortSlot& port = domain_.add_port(std::move(*decorated));
  port.shared = bound->shared;
  domain_.counter_page.add_address(to_string(address.gid));
  begin_port(port, port_spec_, congestion_, address);
  domain_.wake_watcher();
  return {};
}

std::uint32_t DeviceCore::largest_mtu() const noexcept {
  return own_wire_mtu_ != 0 ? own_wire_mtu_ : largest_path_mtu(gids_.at(1).mtu);
}

}  // namespace fairlead::soft
