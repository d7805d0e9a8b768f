// How the processes that share an address find each other: by abstract Unix socket names, one for each place of the
// group and one as a lock, which the kernel frees with the process that holds them, however it ends.
//
// Names are of a network namespace, as UDP ports are, and carry the user's id: processes of different users never meet.
// Threads: stateless.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fairlead/status.h"
#include "verbs/soft/port/private_fd.h"

namespace fairlead::soft {

class GroupNames {
 public:
  explicit GroupNames(const std::string& address);

  /// Held by one process at a time; waits for a few seconds.
  [[nodiscard]] Result<UniqueFd> lock() const;
  /// Invalid where no process has the place.
  [[nodiscard]] UniqueFd connect_to(unsigned place) const noexcept;
  /// Takes the place. Invalid, with errno, where another has it.
  [[nodiscard]] UniqueFd listen_as(unsigned place) const noexcept;

 private:
  [[nodiscard]] UniqueFd open(const std::string& name, int type, bool connects) const noexcept;

  std::string prefix_;
};

/// Asks the process at the other end of connect_to() for its `count` sockets. kUnavailable: it ended;
/// kDeadlineExceeded: it does not answer (named).
[[nodiscard]] Result<std::vector<PrivateFd>> ask_for_sockets(int connection, std::size_t count);

/// Answers who connected to listen_as(), if it asks and is of this user.
void answer_with_sockets(int connection, std::span<const int> sockets) noexcept;

}  // namespace fairlead::soft
