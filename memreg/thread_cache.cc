#include "memreg/thread_cache.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memreg/shelf.h"

namespace fairlead::memreg {
namespace {

// What the thread used last. initial-exec: a call to find it would cost as much as all the rest.
struct Last {
  std::uint64_t shelf = 0;  // its number; 0: none
  ThreadCache* cache = nullptr;
  bool ending = false;  // the thread's caches are gone already
};
constinit thread_local Last last __attribute__((tls_model("initial-exec"))) = {};

struct Caches {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<ThreadCache>>> of_shelf;

  Caches() = default;
  Caches(const Caches&) = delete;
  Caches& operator=(const Caches&) = delete;
  ~Caches() {
    last = {.ending = true};
    for (const auto& [shelf, cache] : of_shelf) cache->retire();
  }
};

// Apart, so that the usual way does not pay for finding it.
[[gnu::noinline]] ThreadCache* find_or_make(Shelf& shelf) {
  thread_local Caches mine;
  for (const auto& [number, cache] : mine.of_shelf) {
    if (number != shelf.number()) continue;
    last = {.shelf = number, .cache = cache.get()};
    return cache.get();
  }
  std::erase_if(mine.of_shelf, [](const auto& each) { return each.second->abandoned(); });
  auto made = std::make_shared<ThreadCache>(shelf);
  shelf.add(made);
  last = {.shelf = shelf.number(), .cache = made.get()};
  mine.of_shelf.emplace_back(shelf.number(), std::move(made));
  return last.cache;
}

}  // namespace

ThreadCache* ThreadCache::of(Shelf& shelf) {
  if (last.shelf == shelf.number()) [[likely]] {
    return last.cache;
  }
  return last.ending ? nullptr : find_or_make(shelf);
}

ThreadCache::ThreadCache(Shelf& shelf) noexcept : process_(::getpid()), shelf_(&shelf) {}

bool ThreadCache::take(std::size_t index, Audience next, FreeBlock& block) noexcept {
  const std::lock_guard lock(lock_);
  Stack& stack = stacks_[index];
  used_ = true;
  if (stack.count == 0) return false;
  FreeBlock* const top = &stack.blocks[stack.count - 1];
  if (next != Audience::kUnnamed && must_clear(top->left_by, next)) {
    for (FreeBlock* each = stack.blocks.data(); each != top; ++each) {
      if (must_clear(each->left_by, next)) continue;
      std::swap(*each, *top);
      break;
    }
  }
  block = *top;
  --stack.count;
  const std::size_t bytes = class_bytes_of(index);
  bytes_ -= bytes;
  counts_.add(1, bytes);
  return true;
}

// With lock_ held.
bool ThreadCache::is_full(std::size_t index) const noexcept {
  const std::size_t bytes = class_bytes_of(index);
  const std::size_t count = stacks_[index].count;
  return count >= most_of(bytes) || (bytes_ + bytes > kMostBytes && count > 0);
}

// With lock_ held.
void ThreadCache::push(std::size_t index, const FreeBlock& block) noexcept {
  const std::size_t bytes = class_bytes_of(index);
  Stack& stack = stacks_[index];
  used_ = true;
  counts_.add(-1, bytes);
  stack.blocks[stack.count++] = block;
  bytes_ += bytes;
}

void ThreadCache::give(Shelf& shelf, std::size_t index, const FreeBlock& block) noexcept {
  {
    const std::lock_guard lock(lock_);
    if (!is_full(index)) [[likely]] {
      push(index, block);
      return;
    }
  }
  give_beside_others(shelf, index, block);
}

// Apart, so that the usual way does not pay for the room on the stack.
[[gnu::noinline]] void ThreadCache::give_beside_others(Shelf& shelf, std::size_t index,
                                                       const FreeBlock& block) noexcept {
  const std::lock_guard on_the_way(moving_);
  Batch out;
  std::size_t moved = 0;
  {
    const std::lock_guard lock(lock_);
    Stack& stack = stacks_[index];
    moved = (stack.count + 1) / 2;  // the oldest: the newest are in the CPU's cache
    std::copy_n(stack.blocks.begin(), moved, out.begin());
    std::copy_n(stack.blocks.begin() + moved, stack.count - moved, stack.blocks.begin());
    stack.count -= static_cast<std::uint32_t>(moved);
    bytes_ -= moved * class_bytes_of(index);
    push(index, block);
  }
  if (moved > 0) shelf.put(index, std::span<const FreeBlock>(out).first(moved));
}

std::size_t ThreadCache::fill(std::size_t index, std::span<const FreeBlock> blocks) noexcept {
  const std::size_t bytes = class_bytes_of(index);
  const std::lock_guard lock(lock_);
  Stack& stack = stacks_[index];
  const std::size_t room = bytes_ < kMostBytes ? (kMostBytes - bytes_) / bytes : 0;
  const std::size_t count = std::min({blocks.size(), most_of(bytes) - stack.count, room});
  std::copy_n(blocks.begin(), count, stack.blocks.begin() + stack.count);
  stack.count += static_cast<std::uint32_t>(count);
  bytes_ += count * bytes;
  return count;
}

void ThreadCache::count(std::int64_t by, std::size_t bytes) noexcept {
  const std::lock_guard lock(lock_);
  counts_.add(by, bytes);
}

Counts ThreadCache::counts(std::size_t& cached_bytes) noexcept {
  const std::lock_guard lock(lock_);
  cached_bytes += bytes_;
  return counts_;
}

void ThreadCache::abandon(bool alone) noexcept {
  // In a forked child somebody who does not exist there may hold the lock.
  std::unique_lock lock(lock_, std::defer_lock);
  if (!alone) lock.lock();
  shelf_ = nullptr;
  abandoned_.store(true, std::memory_order_relaxed);
}

void ThreadCache::retire() noexcept {
  if (::getpid() != process_) return;  // the parent's
  const std::lock_guard lock(lock_);
  retired_.store(true, std::memory_order_relaxed);
  if (shelf_ == nullptr) return;
  // Under the lock, for which abandon() waits: the shelf is there until all has been given back.
  for (std::size_t index = 0; index < kClasses; ++index) {
    Stack& stack = stacks_[index];
    if (stack.count > 0) shelf_->put(index, std::span<const FreeBlock>(stack.blocks).first(stack.count));
    stack.count = 0;
  }
  bytes_ = 0;  // the counts stay until the shelf forgets the cache
}

}  // namespace fairlead::memreg
