// What the kernel would show of a softroce device in files, for programs that read them instead of asking libibverbs:
// /dev/infiniband/DEV (UCX looks whether it may be opened) and of /sys/class/infiniband/NAME/ports/1 the GID table (UCX
// learns from it which GIDs are of RoCE v2). Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>

namespace fairlead::dropin {

/// The open contexts, kept by ibv_open_device and ibv_close_device: the GID table is that of the device's newest one.
void add_open_context(ibv_context* context);
void remove_open_context(ibv_context* context) noexcept;

/// The character device of a softroce device.
[[nodiscard]] bool is_character_device(const char* path) noexcept;

/// The content of a file of an open softroce device; nothing for any other path.
[[nodiscard]] std::optional<std::string> sysfs_text(const char* path);

}  // namespace fairlead::dropin
