#include "memreg/cache/registration_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <system_error>

#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"
#include "fairlead/log.h"

namespace fairlead::memreg::cache {
namespace {

constexpr int kMostNoted = 256;  // entries, while the reader of events has the lock

// What was forgotten, and is watched for a moment yet.
void note_unmapped(const List<Entry>& entries, Range range) noexcept {
  int left = kMostNoted;
  for (Entry* each = entries.front(); each != nullptr && left > 0; each = List<Entry>::next(each->unwatched)) {
    if (each->range.overlaps(range)) each->unmapped.add(range.within(each->range));
    --left;
  }
}

}  // namespace

// ---- leases

Lease::~Lease() {
  if (entry_ != nullptr) cache_->release(*entry_);
}

const Piece& Lease::piece_at(std::uintptr_t address) const noexcept {
  const auto at = std::upper_bound(entry_->pieces.begin(), entry_->pieces.end(), address,
                                   [](std::uintptr_t value, const Piece& each) { return value < each.range.end; });
  return at == entry_->pieces.end() ? entry_->pieces.back() : *at;
}

// ---- beginning and end

RegistrationCache::RegistrationCache(CacheConfig config, RegisterHook hook)
    : config_(std::move(config)), hook_(std::move(hook)) {}

RegistrationCache::~RegistrationCache() {
  if (!fork_mark_.is_mine()) {
    // The parent's threads are not here, nor is what they were in the middle of: it all stays as it is.
    static_cast<void>(sweeper_.release());
    static_cast<void>(new std::shared_ptr<Watcher>(std::move(watcher_)));
    return;
  }
  close();
  if (sweeper_ != nullptr) {
    swept_.store(false);
    rings_.fetch_add(1);
    rings_.notify_all();
    sweeper_->join();
  }
  bury();
  if (watcher_ != nullptr) watcher_->remove(*this);
}

void RegistrationCache::close() noexcept {
  if (!fork_mark_.is_mine() || closed_.exchange(true)) return;
  evict_all();
  bool more = true;
  while (more) {
    const std::lock_guard lock(lock_);
    const auto declared = declared_.overlapping({0, std::numeric_limits<std::uintptr_t>::max()});
    more = !declared.empty();
    if (!more) break;
    Entry& first = *declared.front();
    declared_.remove(first);
    first.state = Entry::State::kGone;
    if (first.users == 0) dead_.push_back(first.link);
  }
  bury();
}

Status RegistrationCache::watching() {
  if (watches_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(opening_);
  if (watches_.load(std::memory_order_relaxed)) return {};
  // What the system does not have it will not get; of what it is short now there may be some the next time.
  if (refused_.code() == Code::kUnimplemented || refused_.code() == Code::kPermissionDenied) return refused_;
  Status refused = begin_watching();
  if (refused.ok()) {
    watches_.store(true, std::memory_order_release);
  } else if (refused.code() != refused_.code()) {
    log(LogLevel::kWarning, "registration cache: " + refused.message());
  }
  refused_ = refused;
  return refused;
}

Status RegistrationCache::begin_watching() {
  Result<std::shared_ptr<Watcher>> opened = config_.watcher ? config_.watcher : Watcher::shared();
  if (!opened) {
    return {opened.error().code(),
            opened.error().message() + ": unregistered memory is not cached here; declare memory, or register it"};
  }
  watcher_ = *std::move(opened);
  try {
    swept_.store(true);
    sweeper_ = std::make_unique<std::thread>(quiet_thread("fl-cache-sweep", [this] { sweep(); }));
  } catch (const std::system_error& error) {
    swept_.store(false);
    watcher_.reset();
    return no_thread("the registration cache", error);
  }
  watcher_->add(*this);
  return {};
}

Status RegistrationCache::usable() const {
  if (!fork_mark_.is_mine()) {
    return {Code::kUnavailable, "this registration cache is that of the process from which this one was forked"};
  }
  if (closed_.load(std::memory_order_relaxed)) return {Code::kUnavailable, "the registration cache is closed"};
  return {};
}

Status RegistrationCache::check(std::span<std::byte> bytes) const {
  if (Status fine = usable(); !fine.ok()) return fine;
  const Range range = range_of(bytes);
  if (!bytes.empty() && range.begin >= page_bytes() && range.begin < range.end &&
      range.end <= std::numeric_limits<std::uintptr_t>::max() - page_bytes()) {
    return {};
  }
  return {Code::kInvalidArgument,
          fmt::format("cannot register {} bytes at {}: that is no memory; name at least 1 byte that is mapped",
                      bytes.size(), static_cast<const void*>(bytes.data()))};
}

CacheStats RegistrationCache::stats() const {
  const std::lock_guard lock(lock_);
  return stats_;
}

// ---- what is there

Result<Lease> RegistrationCache::find(std::span<std::byte> bytes) {
  if (fork_mark_.is_mine() && !closed_.load(std::memory_order_relaxed)) {
    if (Entry* entry = take_declared(range_of(bytes))) return Lease(*this, *entry);
  }
  if (Status fine = check(bytes); !fine.ok()) return fine;
  if (watching().ok() && watcher_->catch_up()) {
    if (Entry* entry = take_cached(pages_of(range_of(bytes)))) return Lease(*this, *entry);
  }
  Result<std::vector<Lease>> one = find(std::span(&bytes, 1));
  if (!one) return one.error();
  return std::move(one->front());
}

Entry* RegistrationCache::take_declared(Range bytes) noexcept {
  const std::lock_guard lock(lock_);
  Entry* const entry = declared_.holding(bytes);
  if (entry == nullptr || entry->state != Entry::State::kLive || bytes.empty()) return nullptr;
  use(*entry);
  ++stats_.declared_hits;
  return entry;
}

Entry* RegistrationCache::take_cached(Range pages) noexcept {
  const std::lock_guard lock(lock_);
  Entry* const entry = cached_.holding(pages);
  if (entry == nullptr || entry->state != Entry::State::kLive || !entry->serves(pages)) return nullptr;
  use(*entry);
  ++stats_.hits;
  return entry;
}

void RegistrationCache::release(Entry& entry) noexcept {
  if (!fork_mark_.is_mine()) return;
  bool dead = false;
  {
    const std::lock_guard lock(lock_);
    dead = drop(entry);
  }
  if (dead) bury_soon();
}

// ---- what changes

void RegistrationCache::on_gone(Range range, bool unmapped) noexcept {
  bool any = false;
  {
    const std::lock_guard lock(lock_);
    const auto gone = cached_.overlapping(range);
    if (unmapped) note_unmapped(unwatched_, range);
    for (Entry* entry : gone) {
      ++stats_.invalidated;
      if (unmapped) entry->unmapped.add(range.within(entry->range));
      forget(*entry);
      any = true;
    }
    cached_.remove(gone);
  }
  if (any) ring();
}

void RegistrationCache::on_moved() noexcept { ring(); }

void RegistrationCache::ring() noexcept {
  rings_.fetch_add(1);
  rings_.notify_one();
}

Range RegistrationCache::not_needed(Range range, std::uintptr_t from) noexcept {
  const std::lock_guard lock(lock_);
  return next_gap(cached_.overlapping(range), range, from);
}

}  // namespace fairlead::memreg::cache
