// How the processes that share an address find each other: by Unix sockets in a directory of the user's own, one for
// each place of the group, and by locks on a file there, which the kernel frees with the process that holds them,
// however it ends.
//
// Directories are of a mount namespace and addresses of a network namespace, so names carry the latter's identity. In
// the directory nobody else can take a name (own_user.h). Each end checks all the same that the other is of its user.
// Threads: stateless.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/private_fd.h"
#include "fairlead/status.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

/// What all names in `directory` begin with that belong to the calling thread's network namespace; an address follows.
/// Error: there is no descriptor to ask for the namespace by.
[[nodiscard]] Result<std::string> names_in(const std::string& directory);

class GroupNames {
 public:
  /// Those of an address. Errors: there is no directory for them.
  static Result<GroupNames> open(const Gid& address);

  /// Held by one process at a time; waits for a few seconds.
  [[nodiscard]] Result<PrivateFd> lock() const;
  /// Invalid where no process has the place. Errors: one has it and does not answer, or it is another user's (named).
  [[nodiscard]] Result<UniqueFd> connect_to(unsigned place) const;
  /// Takes a place that no process has, or whose process died. The lock is held.
  [[nodiscard]] Result<UniqueFd> listen_as(unsigned place) const;
  /// The place of the member that came first of those that live, which is `joining` if there is none. The lock is held.
  [[nodiscard]] unsigned first(unsigned joining) const;
  /// A service for which a member takes requests to connect.
  struct Service {
    std::uint32_t number = 0;
    unsigned place = 0;
  };
  /// Those of members that live. The lock is held. Errors: they cannot be listed.
  [[nodiscard]] Result<std::vector<Service>> services() const;
  /// For the member at `place`. Errors: another one that lives has it. The lock is held.
  [[nodiscard]] Status take_service(std::uint32_t number, unsigned place) const;
  /// It needs no lock: nobody else touches what is a living member's.
  void leave_service(std::uint32_t number) const noexcept;
  /// Gives the place back; its socket still listens.
  void leave(unsigned place) const noexcept;

 private:
  GroupNames(const std::string& names, const Gid& address);
  [[nodiscard]] std::string path_of(unsigned place) const;
  [[nodiscard]] std::string path_of_service(std::uint32_t number) const;
  [[nodiscard]] bool lives(unsigned place) const;

  std::string locks_;   // a file
  long lock_;           // a byte of it
  std::string prefix_;  // of paths
};

/// A number by which a device is told from all others of this user in this network namespace, however that ends that
/// holds it.
struct DeviceNumber {
  unsigned value = 0;
  PrivateFd held = {};
};
/// The lowest free one from 1 to `most`. Errors: there is none, or no directory.
[[nodiscard]] Result<DeviceNumber> claim_device_number(unsigned most);

/// Asks the process at the other end of connect_to() for its `count` sockets. kUnavailable: it ended;
/// kDeadlineExceeded: it does not answer (named).
[[nodiscard]] Result<std::vector<PrivateFd>> ask_for_sockets(int connection, std::size_t count);

/// Answers who connected to listen_as(), if it asks and is of this user.
void answer_with_sockets(int connection, std::span<const int> sockets) noexcept;

}  // namespace fairlead::soft
