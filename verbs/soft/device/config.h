// What a device is made of, as its user says it.
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/soft/queues/profile.h"

namespace fairlead::soft {

struct DeviceConfig {
  std::string name = "soft0";
  Profile profile = Profile::kFull;
  /// "udp" and decorators:
  /// "udp,drop=0.01,reorder=0.01,duplicate=0.01,corrupt=0.001,delay_us=50,seed=7,silent_after=5000".
  std::string packet_io = "udp";
  /// The address whose IPv4-mapped GID stands at index 1. Empty: the first free one of 127.0.0.0/8. GIDs of the host's
  /// other addresses follow; their sockets are bound when a queue pair first uses them.
  std::string address;
  unsigned lane = 0;  // of a port with several queues; further ones are called "soft0q1", "soft0q2", ...
};

/// What the device is called.
[[nodiscard]] std::string device_name(const DeviceConfig& config);
/// How many lanes, each a device of its own, the port has: as many as queues.
[[nodiscard]] unsigned lanes(const DeviceConfig& config);

/// Ok, or the field that is wrong and what is legal.
[[nodiscard]] Status validate(const DeviceConfig& config);
[[nodiscard]] Result<Profile> parse_profile(std::string_view text);

}  // namespace fairlead::soft
