// What is this user's alone: directories that nobody else can write to or look into, and who counts as the same user.
//
// A name in a directory that others can write to, or in the abstract space of Unix sockets, is whoever's comes first.
// Threads: stateless.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "fairlead/status.h"

namespace fairlead {

/// Whether the system's word for a user is this process's own. In a user namespace the overflow id stands for everybody
/// who has no id there, so it is nobody's.
[[nodiscard]] bool is_own_user(uid_t user) noexcept;

/// Who made the other end of a Unix socket, as the kernel says; of no user and no process where it does not.
[[nodiscard]] ucred peer_of(int socket) noexcept;

/// Makes the directory with mode 0700 if it is not there; in any case it is this user's, no link, and closed to others.
/// Errors name the directory, the user that has it, and the remedy.
[[nodiscard]] Status make_own_directory(const std::string& path);

/// Where processes of this user find each other: the same for all of them, whatever their environment, unless
/// FAIRLEAD_SOFT_DIRECTORY names another. A name that another user has taken is logged and passed over. Errors as
/// above.
[[nodiscard]] Result<std::string> meeting_directory();
/// Whether that is none that FAIRLEAD_SOFT_DIRECTORY names.
[[nodiscard]] bool is_usual_meeting_directory();

}  // namespace fairlead
