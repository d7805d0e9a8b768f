// An opened device: a context with its own addresses, keys, queue pairs and progress domain.
//
// Owned by whoever opened it, through ibv_close_device. Threads: every function may be called from any thread; create
// and destroy calls as verbs allows them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/domain.h"
#include "verbs/soft/events.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/port/port_spec.h"
#include "verbs/soft/soft.h"
#include "verbs/soft/watcher.h"

namespace fairlead::soft {

inline constexpr int kMaxQueuePairWrs = 16384;
inline constexpr int kMaxSegments = 32;
inline constexpr int kMaxCompletions = 1 << 20;
inline constexpr int kMaxReads = 128;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr std::uint32_t kMaxMessage = 1U << 30;      // its PSNs fill at most half the window at MTU 256
inline constexpr std::uint64_t kMaxDeviceMemory = 1 << 20;  // of one ibv_alloc_dm
inline constexpr int kGidTableLength = 16;

/// The GID of an address in text.
[[nodiscard]] Result<Gid> parse_address(const std::string& text);
/// An EUI-64 that is locally administered and unicast, as an interface without a burnt-in address has it. Host order.
[[nodiscard]] std::uint64_t random_guid() noexcept;

class Device : public verbs_context {
 public:
  /// Binds the device's address.
  static Result<std::unique_ptr<Device>> open(ibv_device& entry, const DeviceConfig& config, std::uint64_t guid);
  /// Over a port and clock of the caller's, which must outlive it; nobody watches. For tests.
  Device(ibv_device& entry, Profile profile, const Clock& clock, std::unique_ptr<PacketPort> port,
         std::uint64_t guid = random_guid());
  ~Device();

  [[nodiscard]] Domain& domain() noexcept { return domain_; }
  [[nodiscard]] AsyncQueue& async_events() noexcept { return async_events_; }
  [[nodiscard]] Profile profile() const noexcept { return profile_; }
  /// Protection domains, completion queues and channels that live.
  std::atomic<int> objects{0};
  std::uint32_t srqs_made = 0;  // under the domain's lock
  /// Before the first queue pair connects over the device's own address.
  void set_congestion(const std::optional<DcqcnConfig>& config) noexcept { gids_[1].port->congestion = config; }
  /// Starts the watcher if this device has one.
  void watch();

  /// Zero GID at an empty index. Index 0 is link-local, 1 the device's address, then the host's other addresses.
  [[nodiscard]] ibv_gid_entry gid(std::uint32_t index) const noexcept;
  /// The port of a GID, bound now if it is not yet. The domain's lock is held.
  Result<PortSlot*> port_of_gid(std::uint32_t index);

  void describe(ibv_device_attr& attr) const noexcept;
  void describe(ibv_odp_caps& caps) const noexcept;
  void describe(ibv_device_attr_ex& attr) const noexcept;
  void describe(ibv_port_attr& attr) const noexcept;

 private:
  struct GidSlot {
    InterfaceAddress address;
    PortSlot* port = nullptr;
  };

  void list_gids(const Gid& own);

  Profile profile_;
  PortSpec port_spec_;
  CongestionMode congestion_ = CongestionMode::kOff;
  std::uint64_t guid_;
  Domain domain_;
  AsyncQueue async_events_;
  std::vector<GidSlot> gids_;  // ports under the domain's lock, the rest constant
  std::unique_ptr<Watcher> watcher_;
};

/// Fills in the operations that verbs.h calls inline (context_ops.cc).
void set_context_ops(verbs_context& context, Profile profile) noexcept;

}  // namespace fairlead::soft
