// A domain of the shm device: grants that paths of this domain alone may use. Threads: any.
#pragma once

#include "shm/device.h"
#include "transport/memory_domain.h"

namespace fairlead::shm {

class ShmDomain final : public datapath::MemoryDomain {
 public:
  ShmDomain(ShmDevice& device, datapath::DomainNumber number) noexcept : device_(device), number_(number) {}

  [[nodiscard]] std::string_view name() const noexcept override { return device_.name(); }
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override {
    return device_.register_memory(memory);
  }
  void deregister(const datapath::Registration& registration) noexcept override { device_.deregister(registration); }
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override {
    return device_.grant_in(number_, part);
  }
  void revoke(const datapath::Grant& grant) noexcept override { device_.revoke(grant); }

  [[nodiscard]] datapath::DomainNumber number() const noexcept { return number_; }

 private:
  ShmDevice& device_;
  const datapath::DomainNumber number_;
};

/// Of a path's domain: null, or the device, or a ShmDomain.
[[nodiscard]] inline datapath::DomainNumber number_of(const datapath::MemoryDomain* domain) noexcept {
  const auto* own = dynamic_cast<const ShmDomain*>(domain);
  return own != nullptr ? own->number() : 0;
}

}  // namespace fairlead::shm
