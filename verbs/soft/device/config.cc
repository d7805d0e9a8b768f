#include "verbs/soft/device/config.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include "verbs/soft/device/device_core.h"
#include "verbs/soft/port/frame/lanes.h"
#include "verbs/soft/port/port_spec.h"

namespace fairlead::soft {

std::string device_name(const DeviceConfig& config) {
  return config.lane == 0 ? config.name : fmt::format("{}q{}", config.name, config.lane);
}

unsigned lanes(const DeviceConfig& config) {
  const auto spec = parse_port_spec(config.packet_io);
  return spec && spec->dpdk ? spec->dpdk->queues : 1;
}

Status validate(const DeviceConfig& config) {
  if (config.name.empty() || device_name(config).size() >= IBV_SYSFS_NAME_MAX) {
    return {Code::kInvalidArgument,
            fmt::format("device name '{}' must have 1..{} characters", config.name, IBV_SYSFS_NAME_MAX - 1)};
  }
  if (!config.address.empty()) {
    if (const auto address = parse_address(config.address); !address) return address.error();
  }
  if (Status status = parse_port_spec(config.packet_io).status(); !status.ok()) return status;
  if (const unsigned most = lanes(config); config.lane >= most) {
    return {Code::kInvalidArgument,
            fmt::format("there is no lane {} of {}: packet_io {} has {}, counted from 0; a port over DPDK has as many "
                        "as queues=N says, at most {}",
                        config.lane, config.name, config.packet_io, most, kMostLanes)};
  }
  return Status();
}

Result<Profile> parse_profile(std::string_view text) {
  if (text == "full") return Profile::kFull;
  if (text == "pvrdma") return Profile::kPvrdma;
  return {Code::kInvalidArgument, fmt::format("softroce profile '{}' is unknown; legal: full, pvrdma", text)};
}

}  // namespace fairlead::soft
