// An opened device: a context with its events and objects, over the core that it shares with the others of the process.
//
// Owned by whoever opened it, through ibv_close_device. Threads: every function may be called from any thread; create
// and destroy calls as verbs allows them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/unique_fd.h"
#include "verbs/soft/device/device_core.h"
#include "verbs/soft/queues/device_base.h"
#include "verbs/soft/queues/events.h"

namespace fairlead::soft {

/// The largest path MTU within so many bytes; IBV_MTU_256 at least.
[[nodiscard]] ibv_mtu largest_ibv_mtu(std::uint32_t bytes) noexcept;

inline constexpr std::uint64_t kMaxDeviceMemory = 1 << 20;  // of one ibv_alloc_dm

class Device final : public DeviceBase {
 public:
  Device(ibv_device& entry, Profile profile, std::shared_ptr<DeviceCore> core);
  /// Over a port and clock of the caller's, which must outlive it; nobody watches. For tests.
  Device(ibv_device& entry, Profile profile, const Clock& clock, std::unique_ptr<PacketPort> port,
         std::uint64_t guid = random_guid());
  ~Device();

  [[nodiscard]] Domain& domain() noexcept { return domain_; }
  /// One reference is the program's, until it closes the device, and one is each object's: protection domains, queues,
  /// channels. With the last the device goes; so a program that leaves objects behind, as some do, closes it all the
  /// same, and may destroy them later.
  void retain() noexcept { references_.fetch_add(1); }
  void release() noexcept;
  std::uint32_t srqs_made = 0;  // under the domain's lock
  // Of the core (device_core.h).
  void set_congestion(const std::optional<DcqcnConfig>& config) noexcept { core_->set_congestion(config); }
  void watch() { core_->watch(); }
  [[nodiscard]] ibv_gid_entry gid(std::uint32_t index) const noexcept override { return core_->gid(index); }
  [[nodiscard]] std::optional<std::uint32_t> find_gid(const Gid& gid, RoceVersion version) {
    return core_->find_gid(gid, version);
  }
  [[nodiscard]] Status bind_port(std::uint32_t index) override { return core_->bind_port(index); }
  Result<PortSlot*> port_of_gid(std::uint32_t index) override { return core_->port_of_gid(index); }

  [[nodiscard]] ibv_mtu active_mtu() const noexcept override;
  void describe(ibv_device_attr& attr) const noexcept;
  void describe(ibv_odp_caps& caps) const noexcept;
  void describe(ibv_device_attr_ex& attr) const noexcept;
  void describe(ibv_port_attr& attr) const noexcept;

 private:
  std::shared_ptr<DeviceCore> core_;
  Domain& domain_;  // the core's
  UniqueFd cmd_fd_;
  std::atomic<int> references_{1};
};

/// Whether a descriptor is, or is a copy of, some softroce context's cmd_fd. Any process's, any thread.
[[nodiscard]] bool is_soft_cmd_fd(int fd) noexcept;

/// Fills in the operations that verbs.h calls inline (context_ops.cc).
void set_context_ops(verbs_context& context, Profile profile) noexcept;

[[nodiscard]] inline Device& impl(ibv_context* context) noexcept {
  // Unlike verbs_get_ctx this need not ask whether the context is extended: all of ours are.
  auto* bytes = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return static_cast<Device&>(*reinterpret_cast<verbs_context*>(bytes));
}

}  // namespace fairlead::soft
