// Unix sockets as meetings use them, and who is at the other end. Threads: stateless. Errors name the socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/private_fd.h"
#include "fairlead/status.h"

namespace fairlead::shm {

/// What the kernel says of the process that made the other end. The id is that process's as long as the socket has not
/// been hung up and `life` is not readable; 0: it is in another pid namespace.
struct PeerProcess {
  pid_t id = 0;
  PrivateFd life;  // readable when the process has ended; none: the kernel does not give it
};
/// Errors: kPermissionDenied (another user's).
[[nodiscard]] Result<PeerProcess> peer_process(int socket);

/// Closes what the peer has sent and nobody has read. For a socket that is about to be dropped: its last descriptors
/// may take as long to close as the peer likes (SO_LINGER), which then keeps this thread alone, and not all who open or
/// drop a PrivateFd.
void empty(int socket) noexcept;

/// Where an endpoint with this number is found, and under which name it is made before that.
[[nodiscard]] std::string socket_path(const std::string& directory, std::uint64_t number);

/// Connects at once or not at all. Errors: kNotFound (nobody is there), kUnavailable (too many wait there),
/// kResourceExhausted, kPermissionDenied, kInvalidArgument (the directory's name is too long).
[[nodiscard]] Result<PrivateFd> dial(const std::string& path);
/// Errors: kResourceExhausted, kPermissionDenied, kInvalidArgument.
[[nodiscard]] Result<PrivateFd> listen_at(const std::string& path);

}  // namespace fairlead::shm
