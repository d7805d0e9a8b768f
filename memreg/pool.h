// Blocks of many sizes cut from arenas that are registered once.
//
// Sizes are rounded up to a class: powers of two and the quarters between them, so that at most a fifth is lost (more
// only below 256 bytes and between 4 and 16 KiB, where alignment rules). A block of a page or more begins on a page,
// a smaller one on 64 bytes. A block whose class is larger than an arena has an arena of its own, of its size to the
// page, given back when the block is freed; all other memory stays with the pool and its class until the pool goes, and
// is cleared before it is handed out again: what one user left there must not reach another through a buffer that is
// published. Under AddressSanitizer what is not allocated is poisoned.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fairlead/status.h"
#include "memreg/arena.h"

namespace fairlead::memreg {

/// Called once for every new arena, to register it; what it returns is destroyed before the arena is unmapped.
/// Called on the thread that allocates, without the pool's lock.
using ArenaHook = std::function<Result<std::shared_ptr<void>>(std::span<std::byte> arena)>;

/// Threads: all members from any thread. Every block must be freed before the pool is destroyed.
class Pool {
 private:
  struct ArenaEntry;

 public:
  struct Block {
    std::span<std::byte> bytes;  // as many as were asked for, all 0
    std::span<std::byte> arena;  // what the hook saw; holds `bytes`
    void* owner = nullptr;       // what the hook returned for the arena, valid while the block is allocated

   private:
    friend class Pool;
    ArenaEntry* entry_ = nullptr;
  };
  struct Stats {
    std::size_t arenas = 0, arena_bytes = 0;
    std::size_t blocks = 0, used_bytes = 0;  // allocated now, bytes counts whole classes and pages
  };

  /// `hook` may be empty. `arena_bytes` is rounded up to pages.
  explicit Pool(std::size_t arena_bytes, ArenaHook hook = {});
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Errors: kInvalidArgument (0 bytes), kResourceExhausted (Arena's), and the hook's own.
  Result<Block> allocate(std::size_t bytes);
  void free(const Block& block) noexcept;
  [[nodiscard]] Stats stats() const;

  /// `bytes` rounded up to a class.
  [[nodiscard]] static std::size_t class_size(std::size_t bytes) noexcept;

 private:
  struct ArenaEntry {
    Arena memory;
    std::shared_ptr<void> owner;  // after `memory`: destroyed first
    std::size_t carved = 0;       // bytes handed out from the front, a multiple of the page
  };
  struct FreeBlock {
    std::byte* data;
    ArenaEntry* entry;
    bool used = false;  // holds what somebody left there
  };
  struct Taken {
    FreeBlock block;
    std::span<std::byte> fresh;  // pages that nobody has touched
  };
  static constexpr std::size_t kClasses = 4 * 64;  // (log2, quarter)

  /// What a block of `bytes` takes of memory: its class, or its pages where it has an arena of its own.
  [[nodiscard]] std::size_t taken_bytes(std::size_t bytes) const noexcept;
  static std::size_t class_index(std::size_t class_bytes) noexcept;
  Result<std::unique_ptr<ArenaEntry>> make_arena(std::size_t bytes) const;
  // With mutex_ held; all but the first give it up while they make an arena.
  ArenaEntry* add_arena(std::unique_ptr<ArenaEntry> made);
  Result<ArenaEntry*> arena_with_room(std::size_t bytes, std::unique_lock<std::mutex>& lock);
  Result<Taken> take_arena(std::size_t bytes, std::unique_lock<std::mutex>& lock);
  Result<Taken> take(std::size_t class_bytes, std::unique_lock<std::mutex>& lock);

  const std::size_t arena_bytes_;
  const ArenaHook hook_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ArenaEntry>> arenas_;    // under mutex_
  std::array<std::vector<FreeBlock>, kClasses> free_;  // under mutex_
  Stats stats_;                                        // under mutex_
};

}  // namespace fairlead::memreg
