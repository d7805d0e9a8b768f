// Memory shared between processes of one host and user, as a Device: see transport/device.h.
//
// A registration is a count, and whether peers can copy the memory: the kernel lets them read whatever they may and it
// can. Grants say what this end carries out for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "fairlead/config.h"
#include "shm/arena/own_arenas.h"
#include "shm/meeting/place.h"
#include "shm/pulled_reads.h"
#include "transport/device.h"
#include "transport/grant_table.h"

namespace fairlead::shm {

class ShmDevice final : public datapath::Device {
 public:
  /// `clock` outlives the device. Errors: as find_place().
  static Result<std::unique_ptr<ShmDevice>> open(const ShmConfig& config, const Clock& clock = steady_clock());

  [[nodiscard]] std::string_view name() const noexcept override { return "shm"; }
  [[nodiscard]] const datapath::Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] std::string place() const override { return place_.name(); }
  [[nodiscard]] std::string describe() const override;
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override;
  void deregister(const datapath::Registration& registration) noexcept override;
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override;
  void revoke(const datapath::Grant& grant) noexcept override;
  Result<std::unique_ptr<datapath::MemoryDomain>> open_domain() override;
  [[nodiscard]] datapath::DeviceUsage usage() const noexcept override;
  Result<std::unique_ptr<datapath::Endpoint>> open_endpoint() override;

  // For the endpoint.
  [[nodiscard]] const ShmConfig& config() const noexcept { return config_; }
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
  [[nodiscard]] const Place& meeting() const noexcept { return place_; }
  [[nodiscard]] datapath::GrantTable& grants() noexcept { return grants_; }
  [[nodiscard]] PulledReads& reads() noexcept { return reads_; }
  [[nodiscard]] OwnArenas& arenas() noexcept { return arenas_; }
  [[nodiscard]] datapath::Grant grant_in(datapath::DomainNumber domain, const datapath::MemoryDescriptor& part);

 private:
  ShmDevice(const ShmConfig& config, Place place, const Clock& clock);

  const ShmConfig config_;
  const Place place_;
  const Clock& clock_;
  datapath::Capabilities capabilities_;
  datapath::GrantTable grants_;
  PulledReads reads_;  // of grants_
  OwnArenas arenas_;
  std::atomic<std::size_t> registrations_{0};
  std::atomic<datapath::DomainNumber> last_domain_{0};
};

}  // namespace fairlead::shm
