#include "memreg/cache/entry.h"

#include <algorithm>
#include <cassert>

namespace fairlead::memreg::cache {

void FewRanges::add(Range range) noexcept {
  for (std::size_t i = 0; i < count_; ++i) {
    const bool touches = ranges_.at(i).begin <= range.end && range.begin <= ranges_.at(i).end;
    if (!touches && (i + 1 < count_ || count_ < ranges_.size())) continue;
    ranges_.at(i) = ranges_.at(i).with(range);
    return;
  }
  ranges_.at(count_++) = range;
}

std::vector<Range> FewRanges::rest_of(Range all) const {
  std::vector<Range> rest{all};
  for (std::size_t i = 0; i < count_; ++i) {
    std::vector<Range> smaller;
    for (const Range& each : rest) {
      const Range before{each.begin, std::min(each.end, ranges_.at(i).begin)};
      const Range behind{std::max(each.begin, ranges_.at(i).end), each.end};
      if (!before.empty()) smaller.push_back(before);
      if (!behind.empty()) smaller.push_back(behind);
    }
    rest.swap(smaller);
  }
  return rest;
}

bool Entry::serves(Range bytes) const noexcept {
  if (!range.holds(bytes)) return false;
  const auto at = std::upper_bound(named.begin(), named.end(), bytes.begin,
                                   [](std::uintptr_t address, const Range& each) { return address < each.end; });
  return at != named.end() && at->holds(bytes);
}

void EntryIndex::move_to(std::vector<Entry*>& larger) {
  assert(larger.empty() && larger.capacity() > entries_.size());
  larger.insert(larger.end(), entries_.begin(), entries_.end());
  entries_.swap(larger);
}

std::size_t EntryIndex::first_ending_after(std::uintptr_t address) const noexcept {
  const auto at = std::upper_bound(entries_.begin(), entries_.end(), address,
                                   [](std::uintptr_t value, const Entry* each) { return value < each->range.end; });
  return static_cast<std::size_t>(at - entries_.begin());
}

Entry* EntryIndex::holding(Range range) const noexcept {
  const std::size_t at = first_ending_after(range.begin);
  return at < entries_.size() && entries_[at]->range.holds(range) ? entries_[at] : nullptr;
}

std::span<Entry* const> EntryIndex::overlapping(Range range) const noexcept {
  const std::size_t first = first_ending_after(range.begin);
  std::size_t last = first;
  while (last < entries_.size() && entries_[last]->range.begin < range.end) ++last;
  return std::span(entries_).subspan(first, last - first);
}

void EntryIndex::insert(Entry& entry) noexcept {
  assert(has_room() && overlapping(entry.range).empty());
  const auto at = entries_.begin() + static_cast<std::ptrdiff_t>(first_ending_after(entry.range.begin));
  entries_.insert(at, &entry);
}

void EntryIndex::remove(const Entry& entry) noexcept {
  const std::size_t at = first_ending_after(entry.range.begin);
  assert(at < entries_.size() && entries_[at] == &entry);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
}

void EntryIndex::remove(std::span<Entry* const> row) noexcept {
  const auto first = entries_.begin() + (row.data() - entries_.data());
  entries_.erase(first, first + static_cast<std::ptrdiff_t>(row.size()));
}

void add_to(std::vector<Range>& ranges, Range range) {
  const auto first = std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                                      [](const Range& each, std::uintptr_t address) { return each.end < address; });
  auto last = first;
  for (; last != ranges.end() && last->begin <= range.end; ++last) range = range.with(*last);
  if (first == last) {
    ranges.insert(first, range);
    return;
  }
  *first = range;
  ranges.erase(first + 1, last);
}

Range next_gap(std::span<Entry* const> entries, Range range, std::uintptr_t from) noexcept {
  std::uintptr_t at = from;
  for (const Entry* each : entries) {
    if (each->range.end <= at) continue;
    if (each->range.begin > at) return {at, std::min(each->range.begin, range.end)};
    at = each->range.end;
  }
  return {at, range.end};
}

}  // namespace fairlead::memreg::cache
