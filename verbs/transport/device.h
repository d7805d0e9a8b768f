// A verbs device as a datapath::Device: one context with a protection domain, and the memory registered with it; others
// are made as they are asked for (domain.h).
//
// With hardware a grant is a memory region of its own, pinned again: its rkey is all that can be withdrawn without
// touching what else is registered. (A memory window needs no second region, but is bound by a work request on a queue
// pair that is connected, and a publication is there before any.) softroce checks each access itself and its regions
// pin nothing, so that there a grant is an entry in its table of keys.
//
// Ownership: owns context and protection domain; the table of calls must outlive the device.
// Threads and errors: as transport/device.h says.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/clock.h"
#include "fairlead/config.h"
#include "transport/device.h"
#include "verbs/provider/objects.h"
#include "verbs/provider/registration.h"
#include "verbs/transport/async_events.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

/// A device that was just opened, and by what.
struct DeviceSource {
  const VerbsApi* api = nullptr;
  DeviceContext context;
  std::string name;          // "mlx5_0"
  std::string detail;        // for describe(): which verbs, which packet I/O
  bool software = false;     // softroce: ranks below tcp in `auto`, and checks memory itself
  bool peer_memory = false;  // GPU memory may be registered by its address (has_peer_memory)
};

/// What an endpoint works with. Constant while the device lives.
struct DeviceParts {
  DeviceSource source;
  VerbsConfig config;
  std::string name;  // "verbs:mlx5_0"
  QueueLimits limits;
  RegionLimits regions;  // as they were when it was opened
  std::uint32_t max_cqe = 0;
  std::uint8_t max_rd_atomic = 0;       // READs that a queue pair may have outstanding
  std::uint8_t max_dest_rd_atomic = 0;  // READs that it can answer at a time
  ProtectionDomain pd{};
  const Clock* clock = nullptr;

  [[nodiscard]] const VerbsApi& api() const noexcept { return *source.api; }
};

class VerbsDevice final : public datapath::Device {
 public:
  /// Errors: kUnavailable (no usable GID, with the reason of each), kInvalidArgument (a setting beyond the device's
  /// limits that cannot be cut), kResourceExhausted.
  static Result<std::unique_ptr<VerbsDevice>> open(DeviceSource source, const VerbsConfig& config,
                                                   const Clock& clock = steady_clock());

  [[nodiscard]] std::string_view name() const noexcept override { return parts_.name; }
  [[nodiscard]] const datapath::Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  /// Those of its RoCE v2 GIDs, but loopback and link-local ones.
  [[nodiscard]] std::vector<std::string> addresses() const override;
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override {
    return register_in(parts_.pd.get(), memory);
  }
  void deregister(const datapath::Registration& registration) noexcept override;
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override {
    return grant_in(parts_.pd.get(), part);
  }
  void revoke(const datapath::Grant& grant) noexcept override;
  Result<std::unique_ptr<datapath::MemoryDomain>> open_domain() override;
  [[nodiscard]] datapath::DeviceUsage usage() const noexcept override;
  /// Errors: kResourceExhausted.
  Result<std::unique_ptr<datapath::Endpoint>> open_endpoint() override;

  // For the endpoint.
  [[nodiscard]] const DeviceParts& parts() const noexcept { return parts_; }
  [[nodiscard]] AsyncEvents& events() noexcept { return events_; }
  /// The protection domain of a path's: null stands for the device.
  [[nodiscard]] ibv_pd* pd_of(const datapath::MemoryDomain* domain) const noexcept;

  // For its domains.
  Result<datapath::Registration> register_in(ibv_pd* pd, const datapath::MemoryDescriptor& memory);
  Result<datapath::Grant> grant_in(ibv_pd* pd, const datapath::MemoryDescriptor& part);

 private:
  VerbsDevice(DeviceParts parts, std::uint64_t bits_per_second);
  Result<ibv_mr*> make_region(ibv_pd* pd, const datapath::MemoryDescriptor& memory, Access access);
  void drop_region(std::uint64_t handle) noexcept;

  DeviceParts parts_;
  datapath::Capabilities capabilities_;
  std::atomic<std::size_t> registrations_{0}, grants_{0};
  AsyncEvents events_;
};

}  // namespace fairlead::verbs
