// Pages that stay what they are, as those that a device has pinned, and what lies in them.
//
// Held as a device's driver holds them (FOLL_PIN, for long, for writing), by registering them with an io_uring: so
// fork() gives its child copies, and the parent goes on writing to these very pages. Where io_uring is refused, pipes
// hold them (vmsplice(2)), which keep a page when it is unmapped, and lose it to who writes after a fork. Threads: one
// at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace fairlead::verbs::testing {

class PinnedPages {
 public:
  virtual ~PinnedPages() = default;
  /// Whole pages, which are mapped. Null, with errno: they cannot be had.
  static std::unique_ptr<PinnedPages> hold(std::span<std::byte> pages);
  /// What lies there now; empty: it cannot be read.
  [[nodiscard]] virtual std::vector<std::byte> read(std::size_t offset, std::size_t length) = 0;
  /// Whether this system lets programs pin pages.
  [[nodiscard]] static bool are_pinned();
};

}  // namespace fairlead::verbs::testing
