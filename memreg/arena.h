// Page-aligned memory in one piece, zeroed; unmapped when its owner goes.
//
// Private to the process, or, on request, a memfd that another process can map: sealed, so that nobody can make it
// smaller under who uses it, and, where others are only to read it, so that nobody can map it for writing any more. A
// child of fork() shares the memory of a memfd with its parent.
#pragma once

#include <cstddef>
#include <span>
#include <stop_token>
#include <string>

#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "memreg/pages.h"

namespace fairlead::memreg {

struct ArenaOptions {
  PageKind best = PageKind::kTransparent;  // nothing better is tried
  int node = -1;                           // NUMA node that its pages come from, as long as that has some; -1: any
  bool node_is_wish = false;               // one that this process may not use (any more) does without
  bool shared = false;                     // a memfd, which others can map
  bool readable = false;                   // the same, but others can only read it
};

/// Move-only. Threads: a value; the bytes are the user's to synchronise.
class Arena {
 public:
  /// Maps `bytes`, rounded up to pages of the kind that it gets (pages.h); from 2 MiB on it begins at a multiple of
  /// that. Huge pages are all there when it returns, on whichever thread calls; others come when they are touched, or
  /// by populate(). Errors: kInvalidArgument (0 bytes, no such node), kResourceExhausted (names the size, the limit and
  /// the remedy).
  static Result<Arena> map(std::size_t bytes, const ArenaOptions& options = {});

  Arena() noexcept = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] PageKind pages() const noexcept { return pages_; }
  /// Which pages and why not better ones, and why it is not bound to the node that was asked for, if it is not.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// Of the memfd that holds it from offset 0, owned by the arena; -1: it is private.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Nobody else can write it (ArenaOptions::readable).
  [[nodiscard]] bool is_readable() const noexcept { return readable_; }
  /// Gives back to the system what is beyond the first `bytes`, rounded up to pages. 0: all of it.
  void shrink(std::size_t bytes) noexcept;

 private:
  std::span<std::byte> bytes_;
  PageKind pages_ = PageKind::kOrdinary;
  std::string why_;
  UniqueFd fd_;
  bool readable_ = false;
};

/// All of fresh memory's pages, of `page` bytes each, are there when it returns 0; else the error. A page that cannot
/// be had is ENOMEM, also where the kernel, before 5.14, would raise SIGBUS for it.
[[nodiscard]] int make_present(std::span<std::byte> fresh, std::size_t page) noexcept;

/// Finds and clears the pages now, not under the first access: piece by piece, because the kernel holds the process's
/// memory map for a whole call, and every thread that maps anything waits for it. Content stays. A hint: kernels before
/// 5.14 refuse it. Ends early when `stop` is requested.
void populate(std::span<std::byte> bytes, const std::stop_token& stop = {}) noexcept;

}  // namespace fairlead::memreg
