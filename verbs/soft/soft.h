// softroce: a RoCE v2 device in user space. This is its only header for the rest of Fairlead.
//
// Devices are entries of a process-wide list. What a process opens of one entry shares its address, queue pair numbers
// and keys, as contexts of a device of silicon do; every process has its own. Threads: as verbs (thread-safe calls).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "verbs/verbs_api.h"

namespace fairlead::soft {

/// What the device offers. kPvrdma is what VMware's paravirtual device has: RC (and UD), no inline data, no memory
/// windows, no extended QP or CQ, no atomics.
enum class Profile : std::uint8_t { kFull, kPvrdma };

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

/// The table. Its device list holds `soft0` and its further lanes (configured by the environment: FAIRLEAD_SOFT_DEVICE
/// for its name, FAIRLEAD_PACKET_IO, FAIRLEAD_SOFT_PROFILE, FAIRLEAD_SOFT_ADDRESS).
[[nodiscard]] const verbs::VerbsApi& verbs_api();

/// A device with this configuration, kept until the process ends; the same configuration gives the same device.
/// It is opened with verbs_api().open_device. Not in get_device_list. Errors: a bad packet_io, naming the word and the
/// legal ones; a bad address; a lane that the port does not have.
Result<ibv_device*> find_or_add_device(const DeviceConfig& config);

/// What verbs_api().open_device does, with the reason where it cannot.
[[nodiscard]] Result<ibv_context*> open_device(ibv_device* device);

/// Ok, or the field that is wrong and what is legal.
[[nodiscard]] Status validate(const DeviceConfig& config);
[[nodiscard]] Result<Profile> parse_profile(std::string_view text);

struct DeviceCounter {
  std::string_view name;  // as Linux rxe's hw_counters where it has the same one; static
  std::uint64_t value = 0;
};

/// What an open softroce device has counted. Any thread, until the device is closed.
[[nodiscard]] std::vector<DeviceCounter> read_counters(ibv_context* context);

}  // namespace fairlead::soft
