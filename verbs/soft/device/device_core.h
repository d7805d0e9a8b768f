// What a device is apart from who has opened it: its addresses, and the domain behind them.
//
// The contexts that one process opens of one device share it, as they share a device of silicon: the same GIDs, one
// space of queue pair numbers and keys, one socket. Owned by its contexts together. Threads: every function may be
// called from any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/system/fork_mark.h"
#include "fairlead/status.h"
#include "verbs/soft/device/config.h"
#include "verbs/soft/device/gid_table.h"
#include "verbs/soft/domain/domain.h"
#include "verbs/soft/domain/fork_guard.h"
#include "verbs/soft/domain/watcher.h"
#include "verbs/soft/flow_control/control.h"
#include "verbs/soft/port/local/meeting.h"
#include "verbs/soft/port/port_spec.h"
#include "verbs/soft/queues/events.h"

namespace fairlead::soft {

inline constexpr int kGidTableLength = GidTable::kLength;

/// The GID of an address in text.
[[nodiscard]] Result<Gid> parse_address(const std::string& text);
/// An EUI-64 that is locally administered and unicast, as an interface without a burnt-in address has it. Host order.
[[nodiscard]] std::uint64_t random_guid() noexcept;

class DeviceCore;
class UdpPorts;
/// The lanes of one port (port/lanes.h), which open and close together: one, but where a port has several queues.
using DeviceLanes = std::vector<std::unique_ptr<DeviceCore>>;

class DeviceCore {
 public:
  /// Binds the device's address, or opens the port that has it. The GUIDs of further lanes follow the first's.
  static Result<std::shared_ptr<DeviceLanes>> open(const DeviceConfig& config, std::uint64_t guid);
  /// Over a port and clock of the caller's, which must outlive it; nobody watches. For tests.
  DeviceCore(const Clock& clock, std::unique_ptr<PacketPort> port, std::uint64_t guid);
  ~DeviceCore();

  [[nodiscard]] Domain& domain() noexcept { return domain_; }
  [[nodiscard]] std::uint64_t guid() const noexcept { return guid_; }
  /// Path MTU, bytes, that the interface of the device's address carries.
  [[nodiscard]] std::uint32_t largest_mtu() const noexcept;
  /// Before the first queue pair connects over the device's own address.
  void set_congestion(const std::optional<DcqcnConfig>& config) noexcept { own_port_->congestion = config; }
  /// Of the device's own port; down while no interface that is up has the device's address.
  [[nodiscard]] LinkState link() noexcept;
  /// Starts the watcher if this device has one.
  void watch();

  /// Zero GID at an empty index (gid_table.h).
  [[nodiscard]] ibv_gid_entry gid(std::uint32_t index);
  [[nodiscard]] std::optional<std::uint32_t> find_gid(const Gid& gid, RoceVersion version);
  /// Whose asynchronous events tell that the GID table changed, and that the port went down or came up with the
  /// device's own address.
  void add_listener(AsyncQueue& events);
  void remove_listener(AsyncQueue& events) noexcept;
  /// Binds the port of a GID if it is not yet. It may wait for other processes, and takes the domain's lock only when
  /// it does not.
  [[nodiscard]] Status bind_port(std::uint32_t index);
  /// The port of a GID, after bind_port(). The domain's lock is held. kUnavailable: the index has another GID since.
  Result<PortSlot*> port_of_gid(std::uint32_t index);

 private:
  /// Where the port's address comes from: the host's, or nobody else's on a wire of the port's own.
  enum class Wire : std::uint8_t { kHosts, kOwn };
  DeviceCore(const Clock& clock, std::unique_ptr<PacketPort> port, std::uint64_t guid, Wire wire);
  /// A port that owns its wire, or one for each queue.
  static Result<std::shared_ptr<DeviceLanes>> open_own_wire(const DeviceConfig& config, const PortSpec& spec,
                                                            std::uint64_t guid);
  /// `self`: who the device is among those of the host; none: its port owns the wire.
  static Result<std::unique_ptr<DeviceCore>> finish(const DeviceConfig& config, PortSpec spec,
                                                    std::unique_ptr<PacketPort> port, std::uint64_t guid,
                                                    const std::optional<local::Party>& self);
  void follow_host();
  /// Under listeners_mutex_.
  void tell(ibv_event_type type);
  Result<PortSlot*> find_port(std::uint32_t index, const InterfaceAddress& address);

  PortSpec port_spec_;
  std::mutex binding_;                   // before the domain's lock
  std::unique_ptr<UdpPorts> udp_ports_;  // under binding_
  CongestionMode congestion_ = CongestionMode::kOff;
  std::uint64_t guid_;
  Domain domain_;
  ForkGuard fork_guard_{domain_};
  GidTable gids_;
  PortSlot* own_port_;
  const std::uint32_t own_wire_mtu_;  // path MTU; 0: the host's interface says
  const ForkMark fork_mark_;
  std::mutex listeners_mutex_;
  std::vector<AsyncQueue*> listeners_;
  bool had_address_ = true;  // when the listeners were last told
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace fairlead::soft
