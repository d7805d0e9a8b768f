// A TAP device: an Ethernet interface of the kernel's whose wire is a file descriptor of this program's.
//
// Frames are read and written with a struct virtio_net_hdr (10 bytes) in front, so that the kernel need not compute
// checksums that nobody will see broken; with segments also not cut TCP and UDP into packets: a frame has then up to 64
// KiB. The interface goes with the descriptor. It may be moved to another network namespace meanwhile. Source: Linux,
// Documentation/networking/tuntap.rst, include/uapi/linux/if_tun.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead::bench {

constexpr std::size_t kVirtioNetHeader = 10;
constexpr std::size_t kLargestTapFrame = kVirtioNetHeader + 14 + 65536 + 64;  // with room for tags

/// Makes the interface `name` in this thread's network namespace; it is down. The descriptor does not block.
/// Errors: kUnavailable with errno's reason (no /dev/net/tun, no right to make one, a name that is taken).
Result<UniqueFd> make_tap(const std::string& name, bool segments);

/// What a frame as read from a TAP takes on the line: its packets, each with headers of its own. `packets`, if it is
/// not null, is how many these are.
[[nodiscard]] std::uint64_t bytes_on_the_line(std::span<const std::byte> frame, std::uint64_t* packets) noexcept;

}  // namespace fairlead::bench
