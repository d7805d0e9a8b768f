// Where processes of one user on one host find each other: a directory that is this user's alone.
//
// A place is what two ends must have in common to share memory: the kernel as it was booted, the user, the directory,
// and, unless an operator named that, the network namespace. Sockets in the file system cross namespaces, so that
// without the last every two of them on a host would be one. Its name goes into what a peer is told; equal names say
// that a meeting is worth trying, and prove nothing. What proves it is the meeting (greeting.h).
// Threads: stateless. Errors name the directory and the remedy.
#pragma once

#include <cstdint>
#include <string>

#include "fairlead/config.h"
#include "fairlead/status.h"

namespace fairlead::shm {

struct Place {
  std::string directory;  // with mode 0700, of this user, no link
  std::uint64_t number = 0;
  [[nodiscard]] std::string name() const;  // 16 hexadecimal digits
};

/// Makes the directory if it is not there. Errors: kPermissionDenied (others may use it, or it is another user's),
/// kUnavailable (it cannot be made; or what tells this host from others cannot be read).
[[nodiscard]] Result<Place> find_place(const ShmConfig& config);

}  // namespace fairlead::shm
