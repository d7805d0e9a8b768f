// A device that moves nothing: it counts what it knows, refuses when told to, and may be held in the middle of a call.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/device.h"

namespace fairlead::datapath {

class CountingDevice final : public Device {
 public:
  /// Not `entries`: as a NIC. `max_region`: Capabilities::max_region.
  explicit CountingDevice(bool entries = true, std::uint64_t max_region = 0)
      : capabilities_{.grants_are_entries = entries, .max_region = max_region} {}
  std::string_view name() const noexcept override { return "counting"; }
  const Capabilities& capabilities() const noexcept override { return capabilities_; }
  std::string describe() const override { return "counting"; }

  Result<Registration> register_memory(const MemoryDescriptor& memory) override {
    if (on_register) on_register(memory);
    const std::lock_guard lock(mutex_);
    if (refuse) return Status(Code::kResourceExhausted, "RLIMIT_MEMLOCK");
    ++registered_ever;
    registered[++next_] = memory;
    return Registration{.local = next_, .handle = next_};
  }
  void deregister(const Registration& registration) noexcept override {
    const std::lock_guard lock(mutex_);
    unknown += 1 - registered.erase(registration.handle);
  }
  Result<Grant> grant(const MemoryDescriptor& part) override {
    if (on_grant) on_grant(part);
    const std::lock_guard lock(mutex_);
    if (refuse) return Status(Code::kResourceExhausted, "no keys");
    granted[++next_] = part;
    return Grant{.address = reinterpret_cast<std::uintptr_t>(part.bytes.data()), .key = next_, .handle = next_};
  }
  void revoke(const Grant& grant) noexcept override {
    const std::lock_guard lock(mutex_);
    unknown += 1 - granted.erase(grant.handle);
  }
  /// Another of the kind; its owner's.
  Result<std::unique_ptr<MemoryDomain>> open_domain() override {
    auto made = std::make_unique<CountingDevice>();
    made->on_register = on_register;
    made->on_grant = on_grant;
    const std::lock_guard lock(mutex_);
    if (refuse) return Status(Code::kResourceExhausted, "no domains");
    domains.push_back(made.get());
    return std::unique_ptr<MemoryDomain>(std::move(made));
  }
  DeviceUsage usage() const noexcept override {
    const std::lock_guard lock(mutex_);
    return {.registrations = registered.size(), .grants = granted.size()};
  }
  Result<std::unique_ptr<Endpoint>> open_endpoint() override { return Status(Code::kUnimplemented, "it counts"); }

  /// Called first, without a lock.
  std::function<void(const MemoryDescriptor&)> on_register, on_grant;
  bool refuse = false;
  std::map<std::uint64_t, MemoryDescriptor> registered, granted;  // by key
  std::size_t registered_ever = 0;
  std::vector<CountingDevice*> domains;
  std::size_t unknown = 0;  // what was taken back without being there

 private:
  const Capabilities capabilities_;
  mutable std::mutex mutex_;
  std::uint64_t next_ = 0;
};

}  // namespace fairlead::datapath
