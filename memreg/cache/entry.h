// One registration of the cache, and the row in which the cache finds it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/intrusive_list.h"
#include "memreg/cache/pages.h"

namespace fairlead::memreg::cache {

/// Some ranges, without memory of their own: of more than it has room for it holds what lies between some, too. A
/// value.
class FewRanges {
 public:
  void add(Range range) noexcept;
  void clear() noexcept { count_ = 0; }
  /// What of `all` none of them holds, ascending.
  [[nodiscard]] std::vector<Range> rest_of(Range all) const;

 private:
  std::array<Range, 4> ranges_{};
  std::size_t count_ = 0;
};

/// A part of an entry that is registered by itself: all of it, unless it is very large.
struct Piece {
  Range range;
  std::shared_ptr<void> registration;
};

/// Owner: the cache, until it is in no index, nobody uses it, and it was deregistered. What is not constant or marked
/// is guarded by the cache's lock.
struct Entry {
  enum class State : std::uint8_t {
    kPlanned,  // declared, to be registered when it is first asked for
    kComing,   // somebody registers it
    kLive,
    kGone,  // in no index: what lay there may have changed, or another has taken its place
  };

  explicit Entry(Range its_range, bool is_declared = false)
      : range(its_range), declared(is_declared), link(this), unwatched(this) {}

  const Range range;  // pages, or of a declared one its very bytes
  const bool declared;
  std::vector<Range> named;   // what of it somebody asked for, ascending, apart; constant once it is in an index
  std::vector<Piece> pieces;  // ascending; of who registers it, then constant, then of who deregisters it
  std::size_t users = 1;      // who made it is one
  State state = State::kComing;
  bool charged = false;   // its bytes are counted as pinned
  bool watched = false;   // or was about to be
  FewRanges unmapped;     // since then, so that the kernel does not watch them any more, and another may
  Link<Entry> link;       // of idle ones, the longest idle first; or of those that are to be deregistered
  Link<Entry> unwatched;  // of those that nobody finds any more, and that are to be watched no more

  /// Whether it stands for these bytes. What nobody has asked for lies in it to save registrations, and may have been
  /// about to be emptied while it was registered.
  [[nodiscard]] bool serves(Range bytes) const noexcept;
};

/// Entries that do not overlap, by address. Neither allocates nor frees, but for reserve. Threads: the cache's lock.
class EntryIndex {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool has_room() const noexcept { return entries_.size() < entries_.capacity(); }
  /// Takes over the larger vector, which is empty, and leaves its own there, to be freed without the lock.
  void move_to(std::vector<Entry*>& larger);

  /// The one that holds all of the range, or null.
  [[nodiscard]] Entry* holding(Range range) const noexcept;
  /// Those that overlap the range.
  [[nodiscard]] std::span<Entry* const> overlapping(Range range) const noexcept;
  /// It overlaps none, and there is room.
  void insert(Entry& entry) noexcept;
  void remove(const Entry& entry) noexcept;
  /// What overlapping() gave.
  void remove(std::span<Entry* const> row) noexcept;

 private:
  [[nodiscard]] std::size_t first_ending_after(std::uintptr_t address) const noexcept;

  std::vector<Entry*> entries_;
};

/// Adds `range` to ranges that are ascending and apart; what touches becomes one.
void add_to(std::vector<Range>& ranges, Range range);

/// The first part of [from, range.end) that none of the ranges that `entries` hold covers; empty: all is covered.
[[nodiscard]] Range next_gap(std::span<Entry* const> entries, Range range, std::uintptr_t from) noexcept;

}  // namespace fairlead::memreg::cache
