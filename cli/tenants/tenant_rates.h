// What a GPU server's metrics say of its tenants and devices, and how fast it changes from one reading to the next.
//
// Pure: text to values. Lines that are none of ours are passed over.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::cli {

struct TenantReading {
  double sessions = 0, away = 0, memory_bytes = 0, waiting = 0;  // away: of the sessions
  double commands = 0, bytes_in = 0, bytes_out = 0, service_seconds = 0, rejections = 0;
  std::array<double, 3> failures{};  // of a command, a stream, a context
};

/// By name. Errors: kNotFound, the text is of no GPU server.
Result<std::map<std::string, TenantReading>> read_tenants(std::string_view exposition);
/// The same of its devices, by number and name ("0 cuda:0"): what all tenants have of each. A device has no sessions,
/// and nothing is said of what waits. A server of an older release names none.
[[nodiscard]] std::map<std::string, TenantReading> read_devices(std::string_view exposition);

struct TenantRates {
  std::string name;  // or a device's
  TenantReading now;
  double commands = 0, bytes_in = 0, bytes_out = 0;  // a second
  double busy = 0;                                   // of the time, by its commands
  double share = 0;                                  // of all tenants' time; 0 if there was none
};

/// A GPU server's.
struct GpuRates {
  std::vector<TenantRates> tenants, devices;
};

/// `seconds` between the two, more than 0. Who was not there `before` began at 0; so did a server that was started
/// anew.
[[nodiscard]] std::vector<TenantRates> rates(const std::map<std::string, TenantReading>& before,
                                             const std::map<std::string, TenantReading>& now, double seconds);

}  // namespace fairlead::cli
