// A look at softroce, the RoCE v2 device in user space: what is open on this host, and whether a configuration is one.
// Engines open their devices by themselves (EngineConfig::verbs); nobody needs this to move data.
//
// Threads: any, at any time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/export.h"
#include "fairlead/status.h"

namespace fairlead::inline v0 {

struct SoftroceDevice {
  std::string name;     // as in the device list, "soft0"
  std::string address;  // of GID 1; behind it those of the other GIDs in use, "127.0.0.2, 10.0.0.5"
  std::string program;  // what runs it, at most 15 characters
  std::uint32_t process = 0;
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};

/// The devices that this user's programs have open now, by process and address, with what they have counted.
[[nodiscard]] FAIRLEAD_EXPORT std::vector<SoftroceDevice> softroce_devices();
/// Where such programs tell of them: a directory of this user's; empty where it cannot be made.
[[nodiscard]] FAIRLEAD_EXPORT std::string softroce_directory();

/// How a device is asked for; see docs/softroce.md for the words.
struct SoftroceConfig {
  std::string name = "soft0";
  std::string profile = "full";
  std::string packet_io = "udp";
  std::string address;  // empty: the first free one of 127.0.0.0/8

  /// ok, or the field that is wrong and what is legal.
  [[nodiscard]] FAIRLEAD_EXPORT Status validate() const;
};

}  // namespace fairlead::inline v0
