// Which verbs devices this host has, and in words whether each could be used.
#pragma once

#include <string>
#include <vector>

#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"
#include "verbs/discovery/gid_choice.h"
#include "verbs/provider/objects.h"

namespace fairlead::verbs {

/// Asks an open device for everything that choose_gid needs. Errors: kUnavailable, kInvalidArgument (no such port).
Result<PortFacts> query_port_facts(const VerbsApi& api, ibv_context* context, std::string name, int port);

/// The devices of a table by name, as they stand in its list. A table whose list fails has none.
[[nodiscard]] std::vector<std::string> device_names(const VerbsApi& api);

/// Opens the device called `name`. Errors: kNotFound, kUnavailable.
Result<DeviceContext> open_by_name(const VerbsApi& api, std::string_view name);

/// One line per GID of the port (or one if the device cannot be used at all), the chosen one first: toward a peer if
/// there is a route. `detail` stands before the facts of each line.
[[nodiscard]] std::vector<DeviceInfo> explain_device(const PortFacts& port, const Route* route,
                                                     const VerbsConfig& config, const std::string& detail);

}  // namespace fairlead::verbs
