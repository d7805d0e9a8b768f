// A domain of the tcp device: grants that connections of this domain alone may use. Threads: any.
#pragma once

#include "tcp_fallback/device.h"
#include "transport/memory_domain.h"

namespace fairlead::tcp_fallback {

class TcpDomain final : public datapath::MemoryDomain {
 public:
  TcpDomain(TcpDevice& device, datapath::DomainNumber number) noexcept : device_(device), number_(number) {}

  [[nodiscard]] std::string_view name() const noexcept override { return device_.name(); }
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override {
    return device_.register_memory(memory);
  }
  void deregister(const datapath::Registration& registration) noexcept override { device_.deregister(registration); }
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override {
    return device_.grants().grant(part.bytes, part.access, number_);
  }
  void revoke(const datapath::Grant& grant) noexcept override { device_.revoke(grant); }

  [[nodiscard]] datapath::DomainNumber number() const noexcept { return number_; }

 private:
  TcpDevice& device_;
  const datapath::DomainNumber number_;
};

/// Of a path's domain: null, or the device, or a TcpDomain.
[[nodiscard]] inline datapath::DomainNumber number_of(const datapath::MemoryDomain* domain) noexcept {
  const auto* own = dynamic_cast<const TcpDomain*>(domain);
  return own != nullptr ? own->number() : 0;
}

}  // namespace fairlead::tcp_fallback
