// softroce: a RoCE v2 device in user space. The header by which a transport or a program
// opens it.
//
// Devices are entries of a process-wide list. What a process opens of one entry shares its address, queue pair numbers
// and keys, as contexts of a device of silicon do; every process has its own. Threads: as verbs (thread-safe calls).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"
#include "verbs/provider/verbs_api.h"
#include "verbs/soft/device/config.h"

namespace fairlead::soft {

/// The table. Its device list holds `soft0` and its further lanes (configured by the environment: FAIRLEAD_SOFT_DEVICE
/// for its name, FAIRLEAD_PACKET_IO, FAIRLEAD_SOFT_PROFILE, FAIRLEAD_SOFT_ADDRESS).
[[nodiscard]] const verbs::VerbsApi& verbs_api();

/// A device with this configuration, kept until the process ends; the same configuration gives the same device.
/// It is opened with verbs_api().open_device. Not in get_device_list. Errors: a bad packet_io, naming the word and the
/// legal ones; a bad address; a lane that the port does not have.
Result<ibv_device*> find_or_add_device(const DeviceConfig& config);

/// What verbs_api().open_device does, with the reason where it cannot.
[[nodiscard]] Result<ibv_context*> open_device(ibv_device* device);

/// Whether with this packet_io packets to devices of this host cross memory instead of sockets, where those let
/// themselves be met.
[[nodiscard]] bool crosses_memory(std::string_view packet_io);

struct DeviceCounter {
  std::string_view name;  // as Linux rxe's hw_counters where it has the same one; static
  std::uint64_t value = 0;
};

/// What an open softroce device has counted. Any thread, until the device is closed.
[[nodiscard]] std::vector<DeviceCounter> read_counters(ibv_context* context);

}  // namespace fairlead::soft
