// The peer's memory, as far as the kernel lets this process read it. Whoever receives data copies it, so that nothing
// of this process's is ever written by another, and a peer that dies or stops in the middle leaves nothing half done
// that this end could not take back.
//
// It is read by the peer's process id. That is the peer's for as long as the peer has not ended, so a copy counts only
// if the peer was alive afterwards (alive()): else another process may have got the id. For the same reason nothing is
// ever written this way.
// Source: process_vm_readv(2); ptrace(2), "Ptrace access mode checking". Threads: the driving thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "shm/meeting/greeting.h"
#include "shm/meeting/socket.h"

namespace fairlead::shm {

/// Of memory that the CPU can read but the kernel does not pin (memfd_secret(2), a driver's mapping, vvar): no peer can
/// copy it, so that it goes through the rings. Looks at the first byte and the last: what lies between is of their
/// kind.
[[nodiscard]] bool is_by_cpu_only(std::span<const std::byte> own) noexcept;

class PeerMemory {
 public:
  enum class Copied : std::uint8_t { kAll, kSourceGone, kTargetGone, kPeerGone };

  /// Whoever is at the other end of the socket, which it outlives.
  void meet(PeerProcess process, int socket) noexcept;
  void leave() noexcept;

  /// Whether the kernel lets us, and the process is the one that said so.
  [[nodiscard]] bool can_read(const Greeting& greeting) const noexcept;
  /// Copies from the peer's address. Also kPeerGone: the kernel does not let us any more.
  [[nodiscard]] Copied copy(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept;
  /// A system call.
  [[nodiscard]] bool alive() const noexcept;

  [[nodiscard]] pid_t process() const noexcept { return process_.id; }
  /// Readable when the peer has ended; -1: there is none.
  [[nodiscard]] int life() const noexcept { return process_.life.get(); }

 private:
  PeerProcess process_;
  int socket_ = -1;
};

}  // namespace fairlead::shm
