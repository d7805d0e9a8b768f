// Memory whose owner says how long it stays.
#include <fmt/format.h>

#include "memreg/cache/registration_cache.h"

namespace fairlead::memreg::cache {

Status RegistrationCache::declare(std::span<std::byte> bytes, When when) {
  if (Status good = check(bytes); !good.ok()) return good;
  auto made = std::make_unique<Entry>(range_of(bytes), true);
  made->named = {made->range};
  made->state = when == When::kNow ? Entry::State::kComing : Entry::State::kPlanned;
  const bool entered = with_room(declared_, [&] {
    if (!declared_.overlapping(made->range).empty()) return false;
    declared_.insert(*made);
    ++stats_.entries;
    return true;
  });
  if (!entered) {
    return {Code::kAlreadyExists,
            fmt::format("cannot declare {} bytes at {}: some of them are declared already; withdraw those first",
                        bytes.size(), static_cast<const void*>(bytes.data()))};
  }
  Entry& entry = *made.release();
  Status done = when == When::kNow ? register_declared(entry) : Status();
  bool dead = false;
  {
    const std::lock_guard lock(lock_);
    if (!done.ok() && entry.state != Entry::State::kGone) {
      declared_.remove(entry);
      entry.state = Entry::State::kGone;
    }
    dead = drop(entry);
  }
  if (dead) bury();
  return done;
}

Status RegistrationCache::withdraw(const std::byte* begin) {
  if (!fork_mark_.is_mine()) return usable();
  const Range first = range_of({begin, 1});
  for (;;) {
    Entry* entry = nullptr;
    bool coming = false;
    {
      const std::lock_guard lock(lock_);
      entry = declared_.holding(first);
      if (entry == nullptr || entry->range.begin != first.begin) break;
      use(*entry);
      coming = entry->state == Entry::State::kComing;
      if (!coming) {
        declared_.remove(*entry);
        entry->state = Entry::State::kGone;
      }
    }
    if (coming) wait_until_came(*entry);
    bool dead = false;
    {
      const std::lock_guard lock(lock_);
      dead = drop(*entry);
    }
    if (dead) bury();
    if (!coming) return {};
  }
  return {Code::kNotFound, fmt::format("no memory was declared that begins at {}", static_cast<const void*>(begin))};
}

Result<Entry*> RegistrationCache::find_declared(Range bytes) {
  for (;;) {
    Entry* entry = nullptr;
    Entry::State found = Entry::State::kLive;
    {
      const std::lock_guard lock(lock_);
      entry = declared_.holding(bytes);
      if (entry == nullptr) return entry;
      use(*entry);
      found = entry->state;
      if (found == Entry::State::kPlanned) entry->state = Entry::State::kComing;
      if (found == Entry::State::kLive) ++stats_.declared_hits;
    }
    if (found == Entry::State::kLive) return entry;
    if (found == Entry::State::kComing) {
      wait_until_came(*entry);  // if that failed, it is this one's turn
      release(*entry);
      continue;
    }
    Status done = register_declared(*entry);
    if (done.ok()) return entry;
    release(*entry);
    return done;
  }
}

Status RegistrationCache::register_declared(Entry& entry) {
  Status done = charge(entry);
  if (done.ok()) done = register_pieces(entry);
  {
    const std::lock_guard lock(lock_);
    if (done.ok()) {
      // One that is gone by now is as good as one that goes while it is held.
      if (entry.state == Entry::State::kComing) entry.state = Entry::State::kLive;
      ++stats_.misses;
    } else {
      if (entry.state == Entry::State::kComing) entry.state = Entry::State::kPlanned;
      if (entry.charged) stats_.pinned_bytes -= entry.range.size();
      entry.charged = false;
    }
  }
  came();
  return done;
}

}  // namespace fairlead::memreg::cache
