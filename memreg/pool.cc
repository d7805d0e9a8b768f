#include "memreg/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace fairlead::memreg {
namespace {

constexpr std::size_t kSmallAlignment = 64;    // a cache line
constexpr std::size_t kSlabBytes = 16 * 1024;  // small blocks are carved this many bytes at a time

void poison([[maybe_unused]] std::span<std::byte> bytes) noexcept {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(bytes.data(), bytes.size());
#endif
}

void unpoison([[maybe_unused]] std::span<std::byte> bytes) noexcept {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(bytes.data(), bytes.size());
#endif
}

std::size_t round_up(std::size_t value, std::size_t step) noexcept { return (value + step - 1) / step * step; }

}  // namespace

Pool::Pool(std::size_t arena_bytes, ArenaHook hook)
    : arena_bytes_(std::max(round_up(arena_bytes, page_size()), round_up(kSlabBytes, page_size()))),
      hook_(std::move(hook)) {}

Pool::~Pool() {
  assert(stats_.blocks == 0 && "a block outlives its pool");
  for (const auto& entry : arenas_) unpoison(entry->memory.bytes());
}

std::size_t Pool::class_size(std::size_t bytes) noexcept {
  const std::size_t alignment = bytes < page_size() ? kSmallAlignment : page_size();
  const std::size_t step = std::max(std::bit_floor(std::max(bytes, alignment)) / 4, alignment);
  return bytes > std::numeric_limits<std::size_t>::max() - step ? bytes : round_up(bytes, step);
}

std::size_t Pool::taken_bytes(std::size_t bytes) const noexcept {
  const std::size_t class_bytes = class_size(bytes);
  if (class_bytes <= arena_bytes_ || bytes > std::numeric_limits<std::size_t>::max() - page_size()) return class_bytes;
  return round_up(bytes, page_size());
}

std::size_t Pool::class_index(std::size_t class_bytes) noexcept {
  const auto log2 = static_cast<std::size_t>(std::bit_width(class_bytes)) - 1;
  return log2 * 4 + ((class_bytes >> (log2 - 2)) & 3);
}

Result<Pool::Block> Pool::allocate(std::size_t bytes) {
  if (bytes == 0) return {Code::kInvalidArgument, "cannot allocate 0 bytes from a pool; ask for 1 or more"};
  const std::size_t class_bytes = class_size(bytes), used_bytes = taken_bytes(bytes);
  std::unique_lock lock(mutex_);
  auto taken = class_bytes > arena_bytes_ ? take_arena(used_bytes, lock) : take(class_bytes, lock);
  if (!taken) return taken.error();
  const FreeBlock& from = taken->block;
  ++stats_.blocks;
  stats_.used_bytes += used_bytes;
  lock.unlock();
  Block block;
  block.bytes = {from.data, bytes};
  block.arena = from.entry->memory.bytes();
  block.owner = from.entry->owner.get();
  block.entry_ = from.entry;
  unpoison(block.bytes);
  if (from.used) std::memset(from.data, 0, bytes);
  populate(taken->fresh);
  return block;
}

Result<Pool::Taken> Pool::take_arena(std::size_t bytes, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  auto made = make_arena(bytes);
  if (!made) return made.error();
  lock.lock();
  ArenaEntry* const entry = add_arena(std::move(*made));
  entry->carved = entry->memory.bytes().size();
  return Taken{{entry->memory.bytes().data(), entry}, entry->memory.bytes()};
}

Result<Pool::Taken> Pool::take(std::size_t class_bytes, std::unique_lock<std::mutex>& lock) {
  auto& list = free_[class_index(class_bytes)];
  Taken taken;
  if (list.empty()) {
    const std::size_t slab = class_bytes >= page_size() ? class_bytes : round_up(kSlabBytes, page_size());
    const auto arena = arena_with_room(slab, lock);
    if (!arena) return arena.error();
    taken.fresh = (*arena)->memory.bytes().subspan((*arena)->carved, slab);
    (*arena)->carved += slab;
    for (std::size_t end = slab / class_bytes; end-- > 0;) {  // the first block is taken first
      list.push_back({taken.fresh.data() + end * class_bytes, *arena});
    }
  }
  taken.block = list.back();
  list.pop_back();
  return taken;
}

Result<Pool::ArenaEntry*> Pool::arena_with_room(std::size_t bytes, std::unique_lock<std::mutex>& lock) {
  for (const auto& entry : arenas_) {
    if (entry->memory.bytes().size() - entry->carved >= bytes) return entry.get();
  }
  lock.unlock();
  auto made = make_arena(arena_bytes_);
  if (!made) return made.error();
  lock.lock();
  return add_arena(std::move(*made));
}

Result<std::unique_ptr<Pool::ArenaEntry>> Pool::make_arena(std::size_t bytes) const {
  auto memory = Arena::map(bytes);
  if (!memory) return memory.error();
  auto entry = std::make_unique<ArenaEntry>();
  entry->memory = std::move(*memory);
  if (hook_) {
    auto owner = hook_(entry->memory.bytes());
    if (!owner) return owner.error();
    entry->owner = std::move(*owner);
  }
  poison(entry->memory.bytes());
  return entry;
}

Pool::ArenaEntry* Pool::add_arena(std::unique_ptr<ArenaEntry> made) {
  ++stats_.arenas;
  stats_.arena_bytes += made->memory.bytes().size();
  arenas_.push_back(std::move(made));
  return arenas_.back().get();
}

void Pool::free(const Block& block) noexcept {
  const std::size_t class_bytes = class_size(block.bytes.size());
  std::unique_ptr<ArenaEntry> dropped;  // unmapped after the lock
  const std::lock_guard lock(mutex_);
  assert(block.entry_ != nullptr && stats_.blocks > 0);
  --stats_.blocks;
  stats_.used_bytes -= taken_bytes(block.bytes.size());
  if (class_bytes <= arena_bytes_) {
    poison({block.bytes.data(), class_bytes});
    free_[class_index(class_bytes)].push_back({block.bytes.data(), block.entry_, true});
    return;
  }
  const auto own =
      std::find_if(arenas_.begin(), arenas_.end(), [&block](const auto& each) { return each.get() == block.entry_; });
  dropped = std::move(*own);
  arenas_.erase(own);
  unpoison(dropped->memory.bytes());  // the address range may be mapped again by someone else
  --stats_.arenas;
  stats_.arena_bytes -= dropped->memory.bytes().size();
}

Pool::Stats Pool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace fairlead::memreg
