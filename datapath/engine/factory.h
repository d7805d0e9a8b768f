// The one file that names the transports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "datapath/flow/choice.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"
#include "transport/device.h"

namespace fairlead::datapath {

/// What an engine with this configuration opens at once, in order of preference: names for open_device.
[[nodiscard]] std::vector<std::string> transports_to_open(const EngineConfig& config);
/// ok, or the first bad setting of a transport, also of one that may be opened later.
Status validate_transports(const EngineConfig& config);
/// "tcp", "shm", "verbs" (the best device) or "verbs:DEVICE". Errors: the transport's own, and kInvalidArgument for a
/// name that is none of these.
Result<std::unique_ptr<Device>> open_device(const std::string& name, const EngineConfig& config);
[[nodiscard]] Offer offer_of(const Device& device);
/// Whether the pool's memory may be given to peers of this host, to read: shm is used, and there are no principals, of
/// whom one would see what is another's.
[[nodiscard]] bool gives_pool(const EngineConfig& config);
/// Everything this host could use, toward `peer` (a numeric address) if there is one, and why or why not; what the
/// policy leaves out is there, not usable, with the word that does.
[[nodiscard]] std::vector<DeviceInfo> list_devices(const EngineConfig& config, std::string_view peer);

}  // namespace fairlead::datapath
