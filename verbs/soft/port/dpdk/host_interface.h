// A network interface of the kernel's that a driver is bound to: what the driver itself does not tell of it.
//
// As the network namespace has it in which this was made. Threads: any; no state.
#pragma once

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace fairlead::dpdk {

class HostInterface {
 public:
  explicit HostInterface(std::string name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Bytes; 0 where there is no such interface.
  [[nodiscard]] std::uint32_t mtu() const noexcept;
  /// Up, and with a carrier.
  [[nodiscard]] bool runs() const noexcept;

 private:
  const std::string name_;
  const UniqueFd socket_;
};

}  // namespace fairlead::dpdk
