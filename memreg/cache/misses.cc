// Ranges that are not registered yet: which registrations they become, and how those take their place.
#include <fmt/format.h>

#include <algorithm>

#include "memreg/cache/registration_cache.h"

namespace fairlead::memreg::cache {
namespace {

constexpr int kTries = 256;  // while others register the same, or the memory changes

/// Of the mappings, ascending, the hull of those in which the range lies.
Range mapping_of(std::span<const Mapping> mappings, Range pages) {
  Range hull;
  for (const Mapping& each : mappings) {
    if (!each.range.overlaps(pages)) continue;
    hull = hull.empty() ? each.range : hull.with(each.range);
  }
  return hull;
}

std::size_t bytes_in(const std::vector<Range>& ranges) {
  std::size_t sum = 0;
  for (const Range& each : ranges) sum += each.size();
  return sum;
}

Status numbered(std::size_t i, std::size_t count, const Status& status) {
  if (count == 1) return status;
  return {status.code(), fmt::format("range {} of {}: {}", i, count, status.message())};
}

}  // namespace

Result<std::vector<Lease>> RegistrationCache::find(Ranges ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (Status good = check(ranges[i]); !good.ok()) return numbered(i, ranges.size(), good);
  }
  std::vector<Lease> leases(ranges.size());
  bool alone = false;  // nothing is registered along
  for (int tries = 0; tries < kTries; ++tries) {
    if (Status fine = usable(); !fine.ok()) return fine;
    const auto missing = take_known(ranges, leases);
    if (!missing) return missing.error();
    if (missing->empty()) return leases;
    const auto planned = plan(ranges, *missing, alone);
    if (!planned) return planned.error();
    for (const Wanted& wanted : *planned) {
      const Result<Entered> entered = enter(wanted, alone, leases);
      if (!entered && alone) return numbered(wanted.members.front(), ranges.size(), entered.error());
      // What lies between, or was registered before, may be the reason.
      if (!entered || *entered == Entered::kChanged) alone = true;
      if (!entered || *entered != Entered::kYes) break;
    }
  }
  return Status(Code::kUnavailable, fmt::format("cannot register {} bytes at {}: what is mapped there keeps changing",
                                                ranges[0].size(), static_cast<const void*>(ranges[0].data())));
}

/// Gives leases of what is registered, and the numbers of the others.
Result<std::vector<std::size_t>> RegistrationCache::take_known(Ranges ranges, std::vector<Lease>& leases) {
  std::vector<std::size_t> missing;
  bool caught_up = false;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (leases[i]) continue;
    Result<Entry*> entry = find_declared(range_of(ranges[i]));
    if (!entry) return numbered(i, ranges.size(), entry.error());
    if (*entry == nullptr) {
      if (Status fine = caught_up ? Status() : watching(); !fine.ok()) return fine;
      if (!caught_up && !watcher_->catch_up()) {
        return {Code::kUnavailable, "the registration cache cannot tell whether memory has changed; declare it"};
      }
      caught_up = true;
      entry = take_cached(pages_of(range_of(ranges[i])));
    }
    if (*entry != nullptr) {
      leases[i] = Lease(*this, **entry);
    } else {
      missing.push_back(i);
    }
  }
  return missing;
}

Result<std::vector<RegistrationCache::Wanted>> RegistrationCache::plan(Ranges ranges,
                                                                       const std::vector<std::size_t>& missing,
                                                                       bool alone) {
  std::vector<std::size_t> order = missing;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return range_of(ranges[a]).begin < range_of(ranges[b]).begin; });
  Range all = pages_of(range_of(ranges[order.front()]));
  for (const std::size_t i : order) all = all.with(pages_of(range_of(ranges[i])));
  auto mapped = mappings_near(all);
  if (!mapped) return mapped.error();
  const std::vector<Mapping> runs = joined(*std::move(mapped));
  std::size_t first = 0;  // the run in which the range begins
  std::vector<Wanted> planned;
  for (const std::size_t i : order) {
    const Range pages = pages_of(range_of(ranges[i]));
    while (first < runs.size() && runs[first].range.end <= pages.begin) ++first;
    const auto from = std::span(runs).subspan(first);
    if (Status good = check_watchable(from, pages); !good.ok()) return numbered(i, ranges.size(), good);
    const Range mapping = mapping_of(from.first(std::min<std::size_t>(from.size(), 16)), pages);
    if (!planned.empty()) {
      Wanted& last = planned.back();
      const Range hull = last.hull.with(pages);
      const bool near =
          pages.begin < last.mapping.end &&
          pages.begin - std::min(pages.begin, last.hull.end) <= std::max(config_.gap_bytes, bytes_in(last.named)) &&
          (config_.max_bytes == 0 || hull.size() <= config_.max_bytes);
      if (pages.begin < last.hull.end || (near && !alone)) {
        last.hull = hull;
        last.mapping = last.mapping.with(mapping);
        add_to(last.named, pages);
        last.members.push_back(i);
        continue;
      }
    }
    planned.push_back({.hull = pages, .mapping = mapping.with(pages), .named = {pages}, .members = {i}});
  }
  return planned;
}

Result<RegistrationCache::Entered> RegistrationCache::enter(const Wanted& wanted, bool alone,
                                                            std::vector<Lease>& leases) {
  Entry* const entry = place(wanted, alone);
  if (entry == nullptr) return Entered::kWaited;
  const Status done = register_watched(*entry);
  const bool unchanged = done.ok() && watcher_->catch_up();
  bool live = false, dead = false;
  {
    const std::lock_guard lock(lock_);
    live = unchanged && !closed_.load() && entry->state == Entry::State::kComing;
    if (live) {
      entry->state = Entry::State::kLive;
      for (const std::size_t i : wanted.members) {
        use(*entry);
        leases[i] = Lease(*this, *entry);
      }
      stats_.misses += wanted.members.size();
    } else {
      if (entry->state != Entry::State::kGone) cached_.remove(*entry);
      entry->state = Entry::State::kGone;
      forget(*entry);
    }
    dead = drop(*entry);
  }
  came();
  if (dead) bury();
  if (!done.ok()) return done;
  return live ? Entered::kYes : Entered::kChanged;
}

/// With lock_ held: what the range and all that it touches within its mapping make together.
Range RegistrationCache::grown(const Wanted& wanted) const noexcept {
  Range hull = wanted.hull;
  for (;;) {
    Range more = hull;
    for (const Entry* each : cached_.overlapping({hull.begin - 1, hull.end + 1})) {
      const bool outside = (each->range.end == hull.begin && wanted.mapping.begin == hull.begin) ||
                           (each->range.begin == hull.end && wanted.mapping.end == hull.end);
      if (!outside) more = more.with(each->range);
    }
    if (more == hull || (config_.max_bytes != 0 && more.size() > config_.max_bytes)) return hull;
    hull = more;
  }
}

/// An entry that is coming, in the place of all that it overlaps; null: another was coming there, or has come.
Entry* RegistrationCache::place(const Wanted& wanted, bool alone) {
  const auto is_enough = [&wanted](const Entry* each) {
    return each->state == Entry::State::kLive &&
           std::all_of(wanted.named.begin(), wanted.named.end(), [each](Range named) { return each->serves(named); });
  };
  std::vector<Entry*> old;  // with a use of ours each
  for (;;) {
    Range hull;
    Entry* coming = nullptr;
    std::size_t room = 0;
    {
      const std::lock_guard lock(lock_);
      hull = alone ? wanted.hull : grown(wanted);
      const auto there = cached_.overlapping(hull);
      const auto first = std::find_if(there.begin(), there.end(),
                                      [](const Entry* each) { return each->state == Entry::State::kComing; });
      if (std::any_of(there.begin(), there.end(), is_enough)) return nullptr;
      if (first != there.end()) {
        coming = *first;
        use(*coming);
      } else if (there.size() > old.capacity()) {
        room = there.size();
      } else {
        old.assign(there.begin(), there.end());
        for (Entry* each : old) use(*each);
      }
    }
    if (coming != nullptr) {
      wait_until_came(*coming);
      release(*coming);
      return nullptr;
    }
    if (room > 0) {
      old.reserve(2 * room);
      continue;
    }
    auto made = std::make_unique<Entry>(hull);
    made->named = wanted.named;
    for (const Entry* each : old) {
      for (const Range& range : each->named) {
        if (const Range part = range.within(hull); !part.empty()) add_to(made->named, part);
      }
    }
    const bool placed = with_room(cached_, [&] {
      const auto there = cached_.overlapping(hull);
      const bool same = std::equal(there.begin(), there.end(), old.begin(), old.end());
      if (same) {
        for (Entry* each : old) forget(*each);
        cached_.remove(there);
        cached_.insert(*made);
        ++stats_.entries;
        stats_.merged += old.size();
      }
      for (Entry* each : old) static_cast<void>(drop(*each));
      return same;
    });
    bury();  // what it takes the place of is pinned twice otherwise
    if (placed) return made.release();
  }
}

Status RegistrationCache::register_watched(Entry& entry) {
  if (Status room = charge(entry); !room.ok()) return room;
  {
    const std::lock_guard lock(lock_);
    entry.watched = true;
    entry.unmapped.clear();
  }
  if (Status watched = watcher_->watch(entry.range); !watched.ok()) return watched;
  return register_pieces(entry);
}

}  // namespace fairlead::memreg::cache
