#include "memreg/page_runs.h"

#include <cassert>
#include <iterator>

namespace fairlead::memreg {
namespace {

constexpr int kTries = 16;  // runs that are looked at for an alignment, before one that must have room is taken

}  // namespace

void PageRuns::insert(Page begin, std::size_t pages) {
  if (pages == 0) return;
  by_place_.emplace(begin, pages);
  by_size_.emplace(pages, begin);
  free_pages_ += pages;
}

void PageRuns::erase(std::map<Page, std::size_t>::iterator run) {
  free_pages_ -= run->second;
  by_size_.erase({run->second, run->first});
  by_place_.erase(run);
}

void PageRuns::add(Page begin, std::size_t pages) {
  spans_.emplace(begin, pages);
  insert(begin, pages);
}

void PageRuns::remove(Page begin) {
  assert(wholly_free(begin));
  spans_.erase(begin);
  erase(by_place_.find(begin));
}

std::optional<PageRuns::Page> PageRuns::take(std::size_t pages, std::size_t alignment) {
  const auto aligned = [&](Page page) { return (page + alignment - 1) / alignment * alignment; };
  const auto has_room = [&](BySize::const_iterator run) {
    return run != by_size_.end() && aligned(run->second) - run->second + pages <= run->first;
  };
  auto run = by_size_.lower_bound({pages, 0});
  for (int i = 0; run != by_size_.end() && !has_room(run) && i < kTries; ++i) ++run;
  if (!has_room(run)) run = by_size_.lower_bound({pages + alignment - 1, 0});
  if (!has_room(run)) return std::nullopt;
  const auto [length, begin] = *run;
  const Page first = aligned(begin);
  erase(by_place_.find(begin));
  insert(begin, first - begin);
  insert(first + pages, begin + length - (first + pages));
  return first;
}

void PageRuns::give(Page begin, std::size_t pages) {
  auto after = by_place_.lower_bound(begin);
  assert(after == by_place_.end() || after->first >= begin + pages);
  if (after != by_place_.end() && after->first == begin + pages && !spans_.contains(after->first)) {
    pages += after->second;
    erase(std::exchange(after, std::next(after)));
  }
  if (after != by_place_.begin() && !spans_.contains(begin)) {
    if (const auto before = std::prev(after); before->first + before->second == begin) {
      begin = before->first;
      pages += before->second;
      erase(before);
    }
  }
  insert(begin, pages);
}

bool PageRuns::wholly_free(Page span) const {
  const auto run = by_place_.find(span);
  return run != by_place_.end() && run->second == spans_.at(span);
}

}  // namespace fairlead::memreg
