// Arenas of this process: memory that lies in memfds which peers may map to read it.
//
// Threads: any. A descriptor is its memory's owner's, and is used under the lock alone, so that it is open then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>

namespace fairlead::shm {

/// Which arena, in this process: never the same for two.
using ArenaNumber = std::uint64_t;

class OwnArenas {
 public:
  static constexpr ArenaNumber kFirst = 16;  // smaller ones are free to mean something else

  /// The same memory is one arena, removed as often as it was added.
  ArenaNumber add(std::span<std::byte> bytes, int descriptor) {
    const std::lock_guard lock(mutex_);
    const auto [it, is_new] = by_end_.try_emplace(bytes.data() + bytes.size());
    if (is_new) it->second = {.number = last_++, .bytes = bytes, .descriptor = descriptor};
    ++it->second.count;
    return it->second.number;
  }
  void remove(ArenaNumber number) noexcept {
    const std::lock_guard lock(mutex_);
    for (auto it = by_end_.begin(); it != by_end_.end(); ++it) {
      if (it->second.number != number || --it->second.count > 0) continue;
      by_end_.erase(it);
      removed_.fetch_add(1, std::memory_order_release);
      return;
    }
  }

  /// That holds all of these bytes; 0: none does.
  [[nodiscard]] ArenaNumber holding(std::span<const std::byte> bytes) const noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = by_end_.upper_bound(bytes.data());
    const bool held = it != by_end_.end() && !std::less<>()(bytes.data(), it->second.bytes.data()) &&
                      bytes.size() <= static_cast<std::size_t>(it->first - bytes.data());
    return held ? it->second.number : 0;
  }
  /// Calls visit(bytes, descriptor), unless there is no such arena.
  template <typename Visit>
  bool visit(ArenaNumber number, const Visit& visit) const noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& [end, arena] : by_end_) {
      if (arena.number == number) return visit(arena.bytes, arena.descriptor), true;
    }
    return false;
  }
  /// How many were removed: whoever gave some away looks after them when this changes.
  [[nodiscard]] std::uint64_t removed() const noexcept { return removed_.load(std::memory_order_acquire); }

 private:
  struct Arena {
    ArenaNumber number = 0;
    std::span<std::byte> bytes;
    int descriptor = -1;
    std::size_t count = 0;
  };
  mutable std::mutex mutex_;  // guards what follows
  std::map<const std::byte*, Arena, std::less<>> by_end_;
  ArenaNumber last_ = kFirst;
  std::atomic<std::uint64_t> removed_{0};
};

}  // namespace fairlead::shm
