#include "bench/trace/busy_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <utility>

#include "bench/trace/trace.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"

namespace fairlead::bench {
namespace {

using command::Handle;
using command::Outcome;

constexpr std::size_t kMaxHandles = 64;  // a replay has one

class BusyExecutor final : public command::ExecutorAround {
 public:
  using ExecutorAround::ExecutorAround;

  Outcome load(Handle function, std::string_view name) override {
    if (name != kBusy) {
      Outcome outcome = inner().load(function, name);
      if (outcome.ok()) busy_.erase(function.bits);
      return outcome;
    }
    if (function.bits == 0) return refuse(command::kInvalidValue, "handle 0 names nothing");
    if (busy_.size() >= kMaxHandles && !busy_.contains(function.bits)) {
      return refuse(command::kOutOfMemory, fmt::format("'{}' has {} handles, its limit", kBusy, busy_.size()));
    }
    busy_.insert(function.bits);
    return {};
  }

  Outcome launch(const command::Launch& launch, std::span<const std::byte> parameters) override {
    if (!busy_.contains(launch.function.bits)) return inner().launch(launch, parameters);
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t ns = 0;
    if (parameters.size() < sizeof ns) {
      return refuse(command::kInvalidValue, fmt::format("'{}' takes {} bytes or more of parameters, and was given {}",
                                                        kBusy, sizeof ns, parameters.size()));
    }
    std::memcpy(&ns, parameters.data(), sizeof ns);
    if (ns > kMaxTraceNs) {
      return refuse(command::kInvalidValue, fmt::format("'{}' takes at most {} ns, not {}", kBusy, kMaxTraceNs, ns));
    }
    busy_until(begin + std::chrono::nanoseconds(ns));
    return {};
  }

  [[nodiscard]] bool is_short(Handle function) const noexcept override {
    return busy_.contains(function.bits) || inner().is_short(function);
  }

 private:
  static Outcome refuse(std::int32_t result, std::string text) {
    return {result, command::Scope::kCommand, std::move(text)};
  }

  std::unordered_set<std::uint64_t> busy_;  // handles of it
};

}  // namespace

command::ExecutorFactory busy_executors() {
  return [hosts = command::host_executors()](const Peer& peer) -> Result<std::unique_ptr<command::Executor>> {
    Result<std::unique_ptr<command::Executor>> host = hosts(peer);
    if (!host) return host.error();
    return std::unique_ptr<command::Executor>(std::make_unique<BusyExecutor>(*std::move(host)));
  };
}

std::span<const std::byte> busy_parameters(std::vector<std::byte>& parameters, std::uint64_t ns, std::uint64_t bytes) {
  const std::size_t size = std::max<std::size_t>(bytes, sizeof ns);
  if (parameters.size() < size) parameters.resize(size);
  std::memcpy(parameters.data(), &ns, sizeof ns);
  return std::span(parameters).first(size);
}

void busy_until(std::chrono::steady_clock::time_point end) noexcept {
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace fairlead::bench
