// Another process's memory, read by its process id, which is its own only while it lives: nothing is ever written so,
// and what was read counts only if a word that the process showed us was there in the same call, behind the rest.
//
// Source: process_vm_readv(2); ptrace(2), "Ptrace access mode checking". Threads: one at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "verbs/soft/port/local/ring.h"

namespace fairlead::soft::local {

/// What a process shows of itself: a word of its memory, and what is there.
struct Witness {
  std::uint64_t address = 0;
  std::uint64_t word = 0;
};

class PeerMemory {
 public:
  /// Whether the system lets us, and the process is the one that showed the word.
  [[nodiscard]] bool meet(pid_t process, const Witness& witness) noexcept;
  /// The pieces, at most PayloadSource::kMostPlaces, take the reference's bytes, no more and no less. All but the last
  /// of them, which is given apart. False: not all was there, or it is another process's by now.
  [[nodiscard]] bool copy(const Reference& from, std::span<const iovec> to, std::byte& last) const noexcept;

 private:
  pid_t process_ = 0;
  Witness witness_;
};

}  // namespace fairlead::soft::local
