#include "bench/net/retransmissions.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "fairlead/softroce.h"

namespace fairlead::bench {
namespace {

constexpr std::array<std::string_view, 2> kOfSoftroce = {"sent_repeats", "completer_retry_err"};

std::optional<std::uint64_t> of_own_devices() {
  std::optional<std::uint64_t> sum;
  for (const SoftroceDevice& device : softroce_devices()) {
    if (device.process != static_cast<std::uint32_t>(::getpid())) continue;
    for (const auto& [name, value] : device.counters) {
      if (std::ranges::find(kOfSoftroce, name) != kOfSoftroce.end()) sum = sum.value_or(0) + value;
    }
  }
  return sum;
}

}  // namespace

bool counted_by_process(std::string_view transport) noexcept { return transport.starts_with("verbs:soft"); }

std::optional<std::uint64_t> retransmissions(const Engine& engine, std::string_view transport) {
  if (counted_by_process(transport)) return of_own_devices();
  std::optional<std::uint64_t> sum;
  for (const TransportStats& each : engine.stats().transports) {
    if (each.transport == transport && each.retransmissions) sum = sum.value_or(0) + *each.retransmissions;
  }
  return sum;
}

}  // namespace fairlead::bench
