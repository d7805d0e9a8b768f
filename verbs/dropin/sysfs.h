// What the kernel would show of a softroce device in files, for programs that read them instead of asking libibverbs:
//
//   /dev/infiniband/DEV                 the character device: UCX and Mooncake look whether it may be opened
//   /sys/class/infiniband/NAME          links to /sys/devices/virtual/infiniband/NAME, as for every device without a
//   slot:
//                                       Mooncake leaves out a device that leads nowhere
//     device/numa_node                  -1: near to every node, as the kernel says it
//     ports/1/gids, gid_attrs           the GID table of an open device: UCX and Mooncake learn which GIDs are of RoCE
//     v2
//                                       and of which interface
//
// Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>

namespace fairlead::dropin {

/// The open contexts, kept by ibv_open_device and ibv_close_device: the GID table is that of the device's newest one. A
/// forked child has those that it opens itself.
void add_open_context(ibv_context* context);
void remove_open_context(ibv_context* context) noexcept;

/// The content of a file of a softroce device; nothing for any other path.
[[nodiscard]] std::optional<std::string> sysfs_text(const char* path);

/// A path through a softroce device's folder without links, "." and "..", which may have led out of it; nothing for any
/// other path.
[[nodiscard]] std::optional<std::string> sysfs_path(const char* path);

/// For a path of softroce, a path of the system whose kind and rights are the same; null for any other.
[[nodiscard]] const char* stand_in(const char* path);

}  // namespace fairlead::dropin
