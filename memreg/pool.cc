#include "memreg/pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#if defined(__SANITIZE_ADDRESS__)
#define FAIRLEAD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAIRLEAD_ASAN 1
#endif
#endif
#ifdef FAIRLEAD_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace fairlead::memreg {
namespace {

constexpr std::size_t kSmallAlignment = 64;    // a cache line
constexpr std::size_t kSlabBytes = 16 * 1024;  // small blocks are carved this many bytes at a time

void poison([[maybe_unused]] std::span<std::byte> bytes) noexcept {
#ifdef FAIRLEAD_ASAN
  __asan_poison_memory_region(bytes.data(), bytes.size());
#endif
}

void unpoison([[maybe_unused]] std::span<std::byte> bytes) noexcept {
#ifdef FAIRLEAD_ASAN
  __asan_unpoison_memory_region(bytes.data(), bytes.size());
#endif
}

// Pages are found and cleared now, not under the first transfer into them. A hint: kernels before 5.14 refuse it.
void populate(std::byte* data, std::size_t bytes) noexcept { ::madvise(data, bytes, MADV_POPULATE_WRITE); }

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

std::size_t Pool::class_index(std::size_t class_bytes) noexcept {
  const auto log2 = static_cast<std::size_t>(std::bit_width(class_bytes)) - 1;
  return log2 * 4 + ((class_bytes >> (log2 - 2)) & 3);
}

Result<Pool::Block> Pool::allocate(std::size_t bytes) {
  if (bytes == 0) return {Code::kInvalidArgument, "cannot allocate 0 bytes from a pool; ask for 1 or more"};
  const std::size_t class_bytes = class_size(bytes);
  const std::lock_guard lock(mutex_);
  auto taken = take(class_bytes);
  if (!taken) return taken.error();
  Block block;
  block.bytes = {taken->data, bytes};
  block.arena = taken->entry->memory.bytes();
  block.owner = taken->entry->owner.get();
  block.entry_ = taken->entry;
  unpoison(block.bytes);
  ++stats_.blocks;
  stats_.used_bytes += class_bytes;
  return block;
}

Result<Pool::FreeBlock> Pool::take(std::size_t class_bytes) {
  if (class_bytes > arena_bytes_) {
    const auto entry = add_arena(class_bytes);
    if (!entry) return entry.error();
    (*entry)->carved = (*entry)->memory.bytes().size();
    populate((*entry)->memory.bytes().data(), (*entry)->memory.bytes().size());
    return FreeBlock{(*entry)->memory.bytes().data(), *entry};
  }
  auto& list = free_[class_index(class_bytes)];
  if (list.empty()) {
    const std::size_t slab = class_bytes >= page_size() ? class_bytes : round_up(kSlabBytes, page_size());
    const auto carved = carve(slab);
    if (!carved) return carved.error();
    for (std::size_t end = slab / class_bytes; end-- > 0;) {  // the first block is taken first
      list.push_back({carved->data + end * class_bytes, carved->entry});
    }
  }
  const FreeBlock block = list.back();
  list.pop_back();
  return block;
}

Result<Pool::FreeBlock> Pool::carve(std::size_t bytes) {
  const auto cut = [bytes](ArenaEntry& entry) {
    const FreeBlock block{entry.memory.bytes().data() + entry.carved, &entry};
    entry.carved += bytes;
    populate(block.data, bytes);
    return block;
  };
  for (const auto& entry : arenas_) {
    if (entry->memory.bytes().size() - entry->carved >= bytes) return cut(*entry);
  }
  const auto entry = add_arena(arena_bytes_);
  if (!entry) return entry.error();
  return cut(**entry);
}

Result<Pool::ArenaEntry*> Pool::add_arena(std::size_t bytes) {
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
  ++stats_.arenas;
  stats_.arena_bytes += entry->memory.bytes().size();
  arenas_.push_back(std::move(entry));
  return arenas_.back().get();
}

void Pool::free(const Block& block) noexcept {
  const std::size_t class_bytes = class_size(block.bytes.size());
  const std::lock_guard lock(mutex_);
  assert(block.entry_ != nullptr && stats_.blocks > 0);
  --stats_.blocks;
  stats_.used_bytes -= class_bytes;
  if (class_bytes > arena_bytes_) return drop_arena(block.entry_);
  poison({block.bytes.data(), class_bytes});
  free_[class_index(class_bytes)].push_back({block.bytes.data(), block.entry_});
}

void Pool::drop_arena(ArenaEntry* entry) noexcept {
  unpoison(entry->memory.bytes());  // the address range may be mapped again by someone else
  --stats_.arenas;
  stats_.arena_bytes -= entry->memory.bytes().size();
  std::erase_if(arenas_, [entry](const auto& each) { return each.get() == entry; });
}

Pool::Stats Pool::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace fairlead::memreg
