// Packets over Unix sockets, and descriptors that go along. Threads: stateless. Errors are errno.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "base/unique_fd.h"

namespace fairlead {

/// One packet, with a descriptor if there is one. False: errno says why not; nothing was sent.
[[nodiscard]] bool send_packet(int socket, std::span<const std::byte> bytes, int descriptor = -1) noexcept;
/// After a packet that was to wake the other end was not sent: whether that sleeps on, since the system is short of
/// memory. Else it has not taken the packets before, which wake it as well, or it is gone.
[[nodiscard]] bool is_not_woken(int error) noexcept;
/// One packet, and the descriptor that came along. `lost`: one did, and this process could not have it, mostly for its
/// limit (`ulimit -n`); written with every packet. No value: errno; 0: the peer is gone.
[[nodiscard]] std::optional<std::size_t> receive_packet(int socket, std::span<std::byte> bytes, UniqueFd& descriptor,
                                                        bool* lost = nullptr) noexcept;

}  // namespace fairlead
