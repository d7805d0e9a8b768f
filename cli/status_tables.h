// What `fairlead status` shows of a server: as text for people, as JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/base/json.h"
#include "cli/server/server_reading.h"
#include "cli/tenants/tenant_rates.h"

namespace fairlead::cli {

/// `gpu`: of a GPU server.
[[nodiscard]] std::string status_tables(const std::string& where, const ServerReading& server, const GpuRates& gpu);

[[nodiscard]] bench::Json status_document(const std::string& where, const ServerReading& server, const GpuRates& gpu,
                                          double seconds);

}  // namespace fairlead::cli
