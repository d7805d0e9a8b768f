// Devices by name: the only place in verbs/ that knows where a VerbsApi comes from.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "fairlead/status.h"
#include "transport/device.h"

namespace fairlead::verbs {

/// Opens a device: "soft0" (any "soft<number>") is softroce as the configuration says, "soft0q1" its second lane where
/// the packet port has several queues, other names are the system's. Empty: the fastest usable device of the system,
/// else soft0. Errors: kNotFound (with what this host has), kUnavailable (with the reason of each GID),
/// kInvalidArgument (a bad setting).
Result<std::unique_ptr<datapath::Device>> open_device(std::string_view device, const VerbsConfig& config);

/// Whether softroce could be made as the configuration says; opens nothing. Errors: kInvalidArgument.
Status validate(const VerbsConfig& config);

/// Every device of the system, a line per GID, with the reason why it would or would not be chosen: toward `peer`, a
/// numeric address, if there is one.
[[nodiscard]] std::vector<DeviceInfo> list_system_devices(const VerbsConfig& config, std::string_view peer = {});
/// The same of these and of soft0, which is opened for it.
[[nodiscard]] std::vector<DeviceInfo> list_devices(const VerbsConfig& config, std::string_view peer = {});

}  // namespace fairlead::verbs
