#include "memreg/spare_arenas.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace fairlead::memreg {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // cleared between looks at whether it is wanted

void clear(std::span<std::byte> bytes) noexcept { std::memset(bytes.data(), 0, bytes.size()); }

/// Of the calling thread: it runs where nothing else wants to. The application's signals are for its own threads.
void stand_back() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "fairlead-spare");
  constexpr int kLastInLine = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLastInLine);
}

}  // namespace

SpareArenas::List SpareArenas::take_out(List::iterator kept, std::unique_lock<std::mutex>& lock) {
  kept->wanted = true;
  changed_.wait(lock, [&] { return !kept->busy; });
  bytes_ -= kept->arena.bytes().size();
  List out;
  out.splice(out.end(), kept_, kept);
  return out;
}

std::optional<Arena> SpareArenas::take(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  const auto size = [](const Kept& kept) { return kept.arena.bytes().size(); };
  auto best = kept_.end();
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (at->wanted || size(*at) < bytes || size(*at) / 2 > bytes) continue;
    const auto rank = [&](const Kept& kept) { return std::pair(size(kept), size(kept) - kept.cleared); };
    if (best == kept_.end() || rank(*at) < rank(*best)) best = at;
  }
  if (best == kept_.end()) return std::nullopt;
  Kept kept = std::move(take_out(best, lock).front());
  lock.unlock();
  kept.arena.shrink(bytes);
  const std::span<std::byte> all = kept.arena.bytes();
  clear(all.subspan(std::min(kept.cleared, all.size())));
  lock.lock();
  taken_bytes_ += all.size();
  return std::move(kept.arena);
}

void SpareArenas::give(Arena arena) {
  const std::size_t size = arena.bytes().size();
  if (size < kLeast || size > settings_.most) return;
  trim(settings_.most - size);
  const std::scoped_lock lock(mutex_);
  if (bytes_ > settings_.most - size) return;
  kept_.push_back({.arena = std::move(arena), .since = Clock::now()});
  bytes_ += size;
  ++given_;
  if (!thread_.joinable()) {
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {
      return;  // no more threads to be had: take() clears it
    }
  }
  changed_.notify_all();
}

void SpareArenas::trim(std::uint64_t most) {
  List gone;  // unmapped outside of the lock
  std::unique_lock lock(mutex_);
  while (bytes_ > most) {
    const auto oldest = std::ranges::find_if(kept_, [](const Kept& each) { return !each.wanted; });
    if (oldest == kept_.end()) return;  // others take them out
    gone.splice(gone.end(), take_out(oldest, lock));
  }
}

SpareArenas::Stats SpareArenas::stats() const {
  const std::scoped_lock lock(mutex_);
  Stats stats{.bytes = bytes_, .cleared_bytes = 0, .taken_bytes = taken_bytes_};
  for (const Kept& each : kept_) {
    if (!each.busy && each.cleared == each.arena.bytes().size()) stats.cleared_bytes += each.cleared;
  }
  return stats;
}

SpareArenas::Clock::time_point SpareArenas::next_end() const {
  return kept_.empty() ? Clock::time_point::max() : kept_.front().since + settings_.idle;
}

void SpareArenas::run(const std::stop_token& stop) {
  stand_back();
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (clear_some(lock)) continue;
    const auto changed = [this, before = given_] { return given_ != before; };
    if (kept_.empty()) {
      changed_.wait(lock, stop, changed);
    } else {
      changed_.wait_until(lock, stop, next_end(), changed);
    }
    List gone;
    while (!kept_.empty() && !kept_.front().wanted && next_end() <= Clock::now()) {
      gone.splice(gone.end(), take_out(kept_.begin(), lock));
    }
    lock.unlock();
    gone.clear();
    lock.lock();
  }
}

bool SpareArenas::clear_some(std::unique_lock<std::mutex>& lock) {
  const auto next = std::ranges::find_if(
      kept_, [](const Kept& each) { return !each.wanted && each.cleared < each.arena.bytes().size(); });
  if (next == kept_.end()) return false;
  const std::span<std::byte> left = next->arena.bytes().subspan(next->cleared);
  const std::size_t piece = std::min(left.size(), kPiece);
  next->busy = true;
  lock.unlock();
  clear(left.first(piece));
  lock.lock();
  next->busy = false;
  next->cleared += piece;
  if (next->wanted) changed_.notify_all();
  return true;
}

}  // namespace fairlead::memreg
