// Free blocks that one thread keeps of one shelf, so that it takes and gives them without meeting other threads.
//
// A small stack for each class. Its lock is the thread's own nearly always; others take it to empty the cache (when
// memory is short, after a while) and to count. When the thread ends its blocks go back to the shelf; when the shelf
// goes first the cache is left behind, empty, until the thread ends.
// Owned by the thread and by the shelf. Lock order: the shelf's list of caches, moving(), a cache, the shelf's own
// locks.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/spin_lock.h"
#include "memreg/audience.h"
#include "memreg/size_class.h"

namespace fairlead::memreg {

class Shelf;
struct ArenaEntry;

/// A block that nobody has. Without initializers: a batch of them is made with every block that is freed.
struct FreeBlock {
  std::byte* data;
  ArenaEntry* arena;
  Audience left_by;
};

/// What is handed out and given back: counted where it happens, so that one place alone may be below 0.
struct Counts {
  std::int64_t blocks = 0, used_bytes = 0;

  void add(std::int64_t by, std::size_t bytes) noexcept {
    blocks += by;
    used_bytes += by * static_cast<std::int64_t>(bytes);
  }
  void add(const Counts& other) noexcept {
    blocks += other.blocks;
    used_bytes += other.used_bytes;
  }
};

class ThreadCache {
 public:
  static constexpr std::size_t kMostBlocks = 16;                     // of a class
  static constexpr std::size_t kMostOfClass = std::size_t{1} << 20;  // bytes of a class, where that is 2 blocks or more
  static constexpr std::size_t kMostBytes = std::size_t{8} << 20;    // in all
  using Batch = std::array<FreeBlock, kMostBlocks>;

  /// How many blocks of a class are kept at most; half of them come and go at once.
  [[nodiscard]] static constexpr std::size_t most_of(std::size_t class_bytes) noexcept {
    return std::clamp(kMostOfClass / class_bytes, std::size_t{4}, kMostBlocks);
  }

  /// That of the calling thread, made if need be; null while the thread ends.
  static ThreadCache* of(Shelf& shelf);

  explicit ThreadCache(Shelf& shelf) noexcept;
  ThreadCache(const ThreadCache&) = delete;
  ThreadCache& operator=(const ThreadCache&) = delete;
  ~ThreadCache() = default;

  // --- the thread that it is of
  /// A block for `next`, if there is one: one that need not be cleared for it, where there is that.
  [[nodiscard]] bool take(std::size_t index, Audience next, FreeBlock& block) noexcept;
  /// Keeps a block that somebody had. What has to make room for it goes to the shelf.
  void give(Shelf& shelf, std::size_t index, const FreeBlock& block) noexcept;
  /// Keeps blocks that the shelf gave beside the one that is handed out, as far as there is room. How many.
  [[nodiscard]] std::size_t fill(std::size_t index, std::span<const FreeBlock> blocks) noexcept;
  /// Counts a block that came from elsewhere, or went there.
  void count(std::int64_t by, std::size_t bytes) noexcept;

  /// Held by the thread while blocks are on the way between it and the shelf, where nobody else can see them.
  [[nodiscard]] SpinLock& moving() noexcept { return moving_; }

  // --- any thread
  /// Takes all blocks out, calling visit(index, blocks); `only_idle`: if the cache was not used since it was asked
  /// last.
  template <typename Visit>
  void empty(bool only_idle, const Visit& visit);
  [[nodiscard]] Counts counts(std::size_t& cached_bytes) noexcept;
  /// The shelf goes: blocks are worth nothing from now on. `alone`: no other thread exists (a forked child).
  void abandon(bool alone) noexcept;
  /// The thread ends: blocks go back. It keeps its counts.
  void retire() noexcept;
  /// Whether it is of no use to anybody: its thread has ended, or its shelf is gone.
  [[nodiscard]] bool retired() const noexcept { return retired_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool abandoned() const noexcept { return abandoned_.load(std::memory_order_relaxed); }

 private:
  struct Stack {
    std::uint32_t count = 0;
    Batch blocks;
  };

  [[nodiscard]] bool is_full(std::size_t index) const noexcept;
  void push(std::size_t index, const FreeBlock& block) noexcept;
  void give_beside_others(Shelf& shelf, std::size_t index, const FreeBlock& block) noexcept;

  const pid_t process_;
  // Read without the lock, which somebody who is not there in a forked child may hold.
  std::atomic<bool> retired_{false}, abandoned_{false};
  SpinLock moving_;
  SpinLock lock_;  // guards what follows
  Shelf* shelf_;
  bool used_ = false;
  std::size_t bytes_ = 0;
  Counts counts_;
  std::array<Stack, kClasses> stacks_;
};

template <typename Visit>
void ThreadCache::empty(bool only_idle, const Visit& visit) {
  for (std::size_t index = 0; index < kClasses; ++index) {
    Batch out;
    std::size_t count = 0;
    lock_.lock();
    if (index == 0 && only_idle && used_) {
      used_ = false;
      lock_.unlock();
      return;
    }
    Stack& stack = stacks_.at(index);
    count = stack.count;
    std::copy_n(stack.blocks.begin(), count, out.begin());
    stack.count = 0;
    bytes_ -= count * class_bytes_of(index);
    lock_.unlock();
    if (count > 0) visit(index, std::span<const FreeBlock>(out).first(count));
  }
}

}  // namespace fairlead::memreg
