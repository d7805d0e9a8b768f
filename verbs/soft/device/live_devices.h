// The softroce devices that are open now, in this process and in the user's others, with what they have counted.
//
// Threads: any, at any time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::soft {

struct LiveDevice {
  std::string name;     // as in the device list, "soft0"
  std::string address;  // of GID 1; behind it those of the other GIDs in use, "127.0.0.2, 10.0.0.5"
  std::string program;  // what runs it, at most 15 characters
  std::uint32_t process = 0;
  std::vector<std::pair<std::string, std::uint64_t>> counters;
};

/// Every open device of this user, by process and address. Files that dead processes left are removed.
[[nodiscard]] std::vector<LiveDevice> live_devices();

}  // namespace fairlead::soft
