// Free pages in runs: taken where they fit best, and one with their neighbours again when they come back.
//
// Pages are numbers (an address divided by the size of a page), in spans (arenas) that never grow together. No memory
// is touched. Not for the data path: it allocates. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace fairlead::memreg {

class PageRuns {
 public:
  using Page = std::uint64_t;

  /// Adds `pages` from `begin` on, all free, which are in no other span.
  void add(Page begin, std::size_t pages);
  /// Forgets a span that is wholly free.
  void remove(Page begin);
  /// The first of `pages` (at least 1) successive free pages, now taken: of the smallest run that has them, and the
  /// first of these. Its number is a multiple of `alignment` (a power of two).
  [[nodiscard]] std::optional<Page> take(std::size_t pages, std::size_t alignment = 1);
  /// Gives them back: some or all of what was taken, in pieces of any size.
  void give(Page begin, std::size_t pages);

  [[nodiscard]] bool wholly_free(Page span) const;
  [[nodiscard]] std::size_t free_pages() const noexcept { return free_pages_; }
  [[nodiscard]] std::size_t runs() const noexcept { return by_place_.size(); }

 private:
  using BySize = std::set<std::pair<std::size_t, Page>>;

  void insert(Page begin, std::size_t pages);
  void erase(std::map<Page, std::size_t>::iterator run);

  std::map<Page, std::size_t> spans_;     // pages of each
  std::map<Page, std::size_t> by_place_;  // free runs
  BySize by_size_;                        // the same
  std::size_t free_pages_ = 0;
};

}  // namespace fairlead::memreg
