// How entries come to be registered, and how they end.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <system_error>
#include <thread>

#include "memreg/cache/registration_cache.h"

namespace fairlead::memreg::cache {
namespace {

constexpr std::size_t kFewPieces = 3;  // of a range, where devices take such long ones
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kMostThreads = 8;  // that register one large range
constexpr int kTries = 64;               // while others let go of what this one could have

}  // namespace

// ---- users

void RegistrationCache::use(Entry& entry) noexcept {
  if (entry.users++ == 0) entry.link.unlink();
}

bool RegistrationCache::drop(Entry& entry) noexcept {
  if (--entry.users > 0) return false;
  if (entry.state == Entry::State::kGone) {
    dead_.push_back(entry.link);
    return true;
  }
  if (!entry.declared) idle_.push_back(entry.link);
  return false;
}

// One that is coming is still being registered; what is watched of it is seen to when that is over.
void RegistrationCache::forget(Entry& entry) noexcept {
  const bool over = entry.state != Entry::State::kComing;
  entry.state = Entry::State::kGone;
  if (entry.watched && over) unwatched_.push_back(entry.unwatched);
  if (entry.users > 0) return;
  entry.link.unlink();
  dead_.push_back(entry.link);
}

void RegistrationCache::wait_until_came(Entry& entry) {
  std::unique_lock lock(coming_);
  came_.wait(lock, [&] {
    const std::lock_guard look(lock_);
    return entry.state != Entry::State::kComing;
  });
}

void RegistrationCache::came() noexcept {
  {
    const std::lock_guard lock(coming_);
  }
  came_.notify_all();
}

// ---- room

Status RegistrationCache::charge(Entry& entry) {
  const std::size_t bytes = entry.range.size();
  const auto try_it = [&] {
    const std::lock_guard lock(lock_);
    if (config_.max_bytes != 0 && (bytes > config_.max_bytes || stats_.pinned_bytes > config_.max_bytes - bytes)) {
      return false;
    }
    stats_.pinned_bytes += bytes;
    entry.charged = true;
    return true;
  };
  for (bool evicted = true; evicted;) {
    if (try_it()) return {};
    evicted = bytes <= config_.max_bytes && evict_one();
    bury();
  }
  if (try_it()) return {};
  return {
      Code::kResourceExhausted,
      fmt::format("cannot register {} bytes at {:#x}: the cache may pin {} bytes, of which {} are in use; let go of "
                  "some, or raise the limit",
                  bytes, entry.range.begin, config_.max_bytes, stats().pinned_bytes)};
}

Status RegistrationCache::register_pieces(Entry& entry) {
  Status last;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::uint64_t before = buried_.load();
    last = make_pieces(entry);
    if (last.ok()) {
      const std::lock_guard lock(lock_);
      ++stats_.registrations;
      return last;
    }
    entry.pieces.clear();
    if (last.code() != Code::kResourceExhausted) return last;
    evict_one();
    bury();
    if (buried_.load() == before) return last;
  }
  return last;
}

/// Whole pages, of huge ones if it is that long.
std::size_t RegistrationCache::piece_bytes(std::size_t bytes) const {
  std::size_t most = config_.largest_chunk_bytes;
  if (config_.device_most_bytes) most = std::min(most, config_.device_most_bytes());
  const std::size_t few = (bytes + kFewPieces - 1) / kFewPieces;
  const std::size_t unit = few >= kHugePage && most >= kHugePage ? kHugePage : page_bytes();
  const std::size_t wanted = std::max(config_.chunk_bytes, (few + unit - 1) / unit * unit);
  return std::max(std::min(wanted, most) / unit * unit, page_bytes());
}

Status RegistrationCache::make_pieces(Entry& entry) {
  const std::size_t chunk = piece_bytes(entry.range.size());
  const std::size_t count = (entry.range.size() + chunk - 1) / chunk;
  entry.pieces.resize(count);
  std::vector<Status> ends(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = 0; (i = next.fetch_add(1)) < count;) {
      const std::uintptr_t begin = entry.range.begin + i * chunk;
      entry.pieces[i].range = {begin, std::min(begin + chunk, entry.range.end)};
      Result<std::shared_ptr<void>> made = hook_(bytes_of(entry.pieces[i].range));
      if (made) {
        entry.pieces[i].registration = *std::move(made);
      } else {
        ends[i] = made.error();
        next.store(count);
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
    try {
      while (helpers.size() + 1 < std::min({count, cores, kMostThreads})) helpers.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads to be had: slowly, then
    }
    work();
  }
  const auto failed = std::find_if(ends.begin(), ends.end(), [](const Status& each) { return !each.ok(); });
  return failed == ends.end() ? Status() : *failed;
}

// ---- the end

bool RegistrationCache::evict_one() noexcept {
  const std::lock_guard lock(lock_);
  Entry* const entry = idle_.pop_front();
  if (entry == nullptr) return false;
  cached_.remove(*entry);
  forget(*entry);
  ++stats_.evicted;
  return true;
}

void RegistrationCache::evict_all() noexcept {
  const std::lock_guard lock(lock_);
  const auto all = cached_.overlapping({0, std::numeric_limits<std::uintptr_t>::max()});
  for (Entry* entry : all) forget(*entry);
  cached_.remove(all);
}

void RegistrationCache::trim() noexcept {
  if (!fork_mark_.is_mine()) return;
  while (evict_one()) {
  }
  bury();
}

void RegistrationCache::bury() noexcept {
  const std::lock_guard alone(burying_);
  for (;;) {
    unwatch_forgotten();
    std::unique_ptr<Entry> entry;
    {
      const std::lock_guard lock(lock_);
      if (!unwatched_.empty()) continue;  // it may be the next of the dead
      entry.reset(dead_.pop_front());
    }
    if (entry == nullptr) return;
    entry->pieces.clear();
    {
      const std::lock_guard lock(lock_);
      if (entry->charged) stats_.pinned_bytes -= entry->range.size();
      --stats_.entries;
    }
    buried_.fetch_add(1);
  }
}

/// With burying_ held. Before the dead are deregistered, which takes a device's time: the application may soon want to
/// watch memory itself that it has mapped there.
void RegistrationCache::unwatch_forgotten() noexcept {
  if (!watches_.load(std::memory_order_acquire)) return;
  watcher_->unwatch_moved();
  for (;;) {
    Range range;
    FewRanges unmapped;
    {
      const std::lock_guard lock(lock_);
      const Entry* const entry = unwatched_.pop_front();
      if (entry == nullptr) return;
      range = entry->range;
      unmapped = entry->unmapped;
    }
    for (const Range& part : unmapped.rest_of(range)) watcher_->unwatch(part);
  }
}

/// Whoever lets go may drive a lane, which must not wait for a device.
void RegistrationCache::bury_soon() noexcept {
  if (!swept_.load() || closed_.load()) return bury();
  ring();
}

void RegistrationCache::sweep() noexcept {
  while (swept_.load()) {
    const std::uint32_t heard = rings_.load();
    bury();
    if (swept_.load()) rings_.wait(heard);
  }
}

}  // namespace fairlead::memreg::cache
