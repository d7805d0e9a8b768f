// The peer's memory, as far as this process reads it, and the peer's words over the socket. Whoever receives data
// copies it, so that nothing of this process's is ever written by another, and a peer that dies or stops in the middle
// leaves nothing half done that this end could not take back.
//
// Arenas that the peer has given are mapped here, and copied from without a system call: past the caches where so much
// goes to one place that it would not stay in them. Other memory is read by the peer's process id. That is the peer's
// for as long as the peer has not ended, so a copy counts only if the peer was alive afterwards (stands()): else
// another process may have got the id. For the same reason nothing is ever written this way. Source:
// process_vm_readv(2); ptrace(2), "Ptrace access mode checking". Threads: the driving thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "shm/arena/peer_arenas.h"
#include "shm/meeting/greeting.h"
#include "shm/meeting/socket.h"
#include "transport/traffic.h"

namespace fairlead::shm {

/// Of memory that the CPU can read but the kernel does not pin (memfd_secret(2), a driver's mapping, vvar): no peer can
/// copy it, so that it goes through the rings. Looks at the first byte and the last: what lies between is of their
/// kind.
[[nodiscard]] bool is_by_cpu_only(std::span<const std::byte> own) noexcept;

/// To one place, without a break: what comes after so many bytes goes past the caches (docs/results/same_host.md), and
/// so does all of the next such run, which is likely to be as long.
inline constexpr std::uint64_t kStreamedFrom = std::uint64_t{4} << 20;

/// Why a peer is not to be trusted that names other memory than it offered.
inline constexpr std::string_view kMemoryNotOffered = "the place of memory that was not offered to be copied";

class PeerMemory {
 public:
  /// kNotOffered: no arena holds it, and the kernel is not asked. It may have been in one that was taken back.
  enum class Copied : std::uint8_t { kAll, kSourceGone, kTargetGone, kPeerGone, kNotOffered };

  explicit PeerMemory(datapath::Copies& copies) noexcept : copies_(copies) {}

  /// Whoever is at the other end of the socket, which it outlives.
  void meet(PeerProcess process, int socket) noexcept;
  void leave() noexcept;

  /// Whether the kernel lets us, and the process is the one that said so.
  [[nodiscard]] bool can_read(const Greeting& greeting) const noexcept;
  /// Which ways this end has offered: by its id, and from arenas. Both sides stay until leave().
  void start(const Side* theirs, Side* ours, bool pulls, bool maps) noexcept {
    pulls_ = pulls;
    arenas_.start(theirs, ours, maps);
  }
  /// Takes what came over the socket: that which woke us, and arenas.
  void listen() noexcept;
  /// Neither has the peer ended, nor its end been closed. A system call.
  [[nodiscard]] bool alive() const noexcept;
  /// As of the last listen(): the peer has ended, or closed its end.
  [[nodiscard]] bool hung_up() const noexcept { return hung_up_; }
  /// Not empty: what the peer sent over the socket, for which it is not to be trusted; static.
  [[nodiscard]] std::string_view reason() const noexcept { return reason_; }
  /// The last copy was refused by the kernel, which had allowed such copies when the two met.
  [[nodiscard]] bool is_denied() const noexcept { return denied_; }

  /// What the peer said of its arenas, before anything is copied that it named behind that. Outside of a section of the
  /// grants': it may take as long as the peer likes to close what it sent.
  void hear() noexcept {
    if (arenas_.is_behind()) listen();
  }
  /// Copies from the peer's address. kPeerGone: there is a reason(), or it has ended, or the kernel does not let us any
  /// more.
  [[nodiscard]] Copied copy(std::byte* to, std::uint64_t from, std::size_t bytes) noexcept;
  /// Whether all that was copied until now was the peer's, for either half of the path: once not, never again. A system
  /// call where the kernel has copied since it was so.
  [[nodiscard]] bool stands() noexcept;

  [[nodiscard]] datapath::Copies& copies() const noexcept { return copies_; }
  [[nodiscard]] pid_t process() const noexcept { return process_.id; }
  /// Readable when the peer has ended; -1: there is none.
  [[nodiscard]] int life() const noexcept { return process_.life.get(); }

 private:
  [[nodiscard]] Copied copy_mapped(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;
  [[nodiscard]] Copied copy_by_id(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept;

  datapath::Copies& copies_;
  PeerProcess process_;
  int socket_ = -1;
  PeerArenas arenas_;
  bool pulls_ = false;
  bool hung_up_ = false;
  std::string_view reason_;
  bool denied_ = false;
  bool copied_by_id_ = false;
  const std::byte* next_ = nullptr;  // where the last mapped copy ended,
  std::uint64_t run_ = 0;            // how much went there without a break,
  bool after_long_ = false;          // and whether the run before that was a long one
};

}  // namespace fairlead::shm
