// TCP as a Device: the grants of this end, which its endpoint asks at every access. See transport/device.h.
//
// A registration is nothing but a count: the kernel reads and writes any memory of the process. So a grant over a part
// of one is an entry in a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fairlead/config.h"
#include "transport/device.h"
#include "transport/grant_table.h"

namespace fairlead::tcp_fallback {

class TcpDevice final : public datapath::Device {
 public:
  /// `clock` outlives the device. Errors: kInvalidArgument (a setting).
  static Result<std::unique_ptr<TcpDevice>> open(const TcpConfig& config, const Clock& clock = steady_clock());

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] const datapath::Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] std::string describe() const override;
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override;
  void deregister(const datapath::Registration& registration) noexcept override;
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override;
  void revoke(const datapath::Grant& grant) noexcept override { grants_.revoke(grant); }
  Result<std::unique_ptr<datapath::MemoryDomain>> open_domain() override;
  [[nodiscard]] datapath::DeviceUsage usage() const noexcept override;
  /// Errors: kAlreadyExists (the port is in use), kPermissionDenied (a port below 1024), kResourceExhausted
  /// (descriptors), kInvalidArgument (TcpConfig::port of a device with several: each takes the next).
  Result<std::unique_ptr<datapath::Endpoint>> open_endpoint() override;

  // For the endpoint.
  [[nodiscard]] const TcpConfig& config() const noexcept { return config_; }
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
  [[nodiscard]] datapath::GrantTable& grants() noexcept { return grants_; }
  /// Its number, from 0, which no other has now.
  [[nodiscard]] std::size_t endpoint_opened();
  void endpoint_closed(std::size_t number) noexcept { endpoints_[number] = false; }

 private:
  TcpDevice(const TcpConfig& config, const Clock& clock);

  const TcpConfig config_;
  const Clock& clock_;
  datapath::Capabilities capabilities_;
  datapath::GrantTable grants_;
  std::atomic<std::size_t> registrations_{0};
  std::atomic<datapath::DomainNumber> last_domain_{0};
  std::vector<bool> endpoints_;  // by number: whether there is one
};

}  // namespace fairlead::tcp_fallback
