// A protection domain of a verbs device beside the device's own: queue pairs that are made in it reach its regions
// alone (IBTA 10.2.3), here and for the peer.
//
// Owner: who opened it; the device outlives it. Threads: any.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "transport/memory_domain.h"
#include "verbs/provider/objects.h"
#include "verbs/transport/device.h"

namespace fairlead::verbs {

class VerbsDomain final : public datapath::MemoryDomain {
 public:
  /// Errors: kResourceExhausted.
  static Result<std::unique_ptr<datapath::MemoryDomain>> open(VerbsDevice& device);

  [[nodiscard]] std::string_view name() const noexcept override { return device_.name(); }
  Result<datapath::Registration> register_memory(const datapath::MemoryDescriptor& memory) override {
    return device_.register_in(pd_.get(), memory);
  }
  void deregister(const datapath::Registration& registration) noexcept override { device_.deregister(registration); }
  Result<datapath::Grant> grant(const datapath::MemoryDescriptor& part) override {
    return device_.grant_in(pd_.get(), part);
  }
  void revoke(const datapath::Grant& grant) noexcept override { device_.revoke(grant); }

  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }

 private:
  VerbsDomain(VerbsDevice& device, ProtectionDomain pd) noexcept : device_(device), pd_(std::move(pd)) {}

  VerbsDevice& device_;
  const ProtectionDomain pd_;
};

}  // namespace fairlead::verbs
