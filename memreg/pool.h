// Blocks of many sizes cut from arenas that are registered once.
//
// Blocks up to 256 KiB are of a class (size_class.h), of which each thread keeps some; larger ones are as many pages as
// they need. A block of a page or more begins on a page, a smaller one on 64 bytes, or as its request says. A block
// that does not fit an arena, and one that is shared, has an arena of its own, given back when the block is freed. All
// other memory that is freed becomes one with its neighbours, and an arena that is wholly free goes back to the system
// after a while, or at trim().
// Bytes: a block of fresh pages is all 0, and so is one whose request names no audience. One for an audience
// (Pool::audience) holds what that audience left there or 0, never what another did.
// Pages are found and cleared by the thread that asks, before it has the block and without a lock. Under
// AddressSanitizer what is not allocated is poisoned.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "fairlead/status.h"
#include "memreg/arena.h"
#include "memreg/audience.h"
#include "memreg/keeper.h"
#include "memreg/shelf.h"
#include "memreg/thread_cache.h"

namespace fairlead::memreg {

struct PoolOptions {
  std::size_t arena_bytes = std::size_t{64} << 20;  // rounded up to pages, at least 64 KiB
  PageKind best = PageKind::kHuge1G;                // of its arenas' pages
  int node = -1;                                    // NUMA node of its arenas, while it may be used; -1: any
  std::size_t max_bytes = 0;                        // of all arenas together, rounded up to pages; 0: no limit
  bool readable = false;                            // arenas are memfds that other processes may be given to read
  std::chrono::milliseconds idle{
      0};  // an arena that is unused for so long is given back, by a thread of the pool; 0: never
};

/// Threads: all members from any thread. Every block must be freed before the pool is destroyed; threads that used it
/// may live on.
class Pool {
 public:
  struct Request {
    std::size_t alignment = 0;               // a power of two up to 1 GiB; 0: as said above
    Audience audience = Audience::kUnnamed;  // who may see the bytes
    int node = -1;                           // NUMA node; -1: the pool's
    bool shared = false;                     // on a memfd of its own, which another process can map
  };
  struct Block {
    std::span<std::byte> bytes;  // as many as were asked for
    std::span<std::byte> arena;  // what the hook saw; holds `bytes`
    void* owner = nullptr;       // what the hook returned for the arena, valid while the block is allocated

    /// Of a shared block, the pool's: the memfd that holds it from `fd_offset` on; -1: it is not shared.
    [[nodiscard]] int fd() const noexcept;
    [[nodiscard]] std::size_t fd_offset() const noexcept;

   private:
    friend class Pool;
    enum class Kind : std::uint8_t { kClass, kRun, kArena };
    ArenaEntry* entry_ = nullptr;
    std::size_t taken_ = 0;  // bytes
    Audience audience_ = Audience::kUnnamed;
    Kind kind_ = Kind::kClass;
  };
  static_assert(sizeof(Block) == 64, "a cache line, for it is handed from thread to thread");
  struct Stats {
    std::size_t arenas = 0, arena_bytes = 0;
    std::array<std::size_t, kPageKinds.size()> arenas_of{}, bytes_of{};  // the same by PageKind
    std::size_t blocks = 0, used_bytes = 0;              // allocated now; bytes counts whole classes and pages
    std::size_t cached_bytes = 0;                        // free blocks kept for threads
    std::size_t caches = 0;                              // of threads; one that ended counts until the next begins
    std::uint64_t given_back = 0, given_back_bytes = 0;  // arenas that were idle, ever
    std::string pages;  // which pages the newest arena has, and why not better ones; empty: there was none
  };

  /// `hook` may be empty.
  explicit Pool(const PoolOptions& options, ArenaHook hook = {});
  explicit Pool(std::size_t arena_bytes, ArenaHook hook = {})
      : Pool(PoolOptions{.arena_bytes = arena_bytes}, std::move(hook)) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Errors: kInvalidArgument (0 bytes, an alignment that is none, no such node), kResourceExhausted (Arena's; the
  /// pool's limit), and the hook's own.
  Result<Block> allocate(std::size_t bytes, const Request& request);
  Result<Block> allocate(std::size_t bytes) { return allocate(bytes, Request{}); }
  void free(const Block& block) noexcept;

  /// For Request::audience: these principals, in any order; none: everybody.
  [[nodiscard]] Audience audience(std::span<const std::string> principals) { return audiences_.number_of(principals); }

  /// Gives all arenas back that are wholly free now.
  void trim() noexcept { give_back(false); }
  /// A round of what the pool's thread does twice in PoolOptions::idle: gives back what nobody used for some rounds.
  void age() noexcept { give_back(true); }
  /// While others use the pool each figure is right at some moment, not all at the same.
  [[nodiscard]] Stats stats() const;

 private:
  Result<Block> allocate_block(Shelf& shelf, std::size_t class_bytes, std::size_t bytes, Audience audience);
  Result<Block> allocate_run(Shelf& shelf, std::size_t bytes, std::size_t alignment, Audience audience);
  Result<Block> allocate_arena(Shelf& shelf, std::size_t bytes, const Request& request);
  Result<FreeBlock> refill(Shelf& shelf, ThreadCache* cache, std::size_t index);
  static void count(Shelf& shelf, std::int64_t by, std::size_t bytes);
  static void fill(Block& block, const FreeBlock& from, std::size_t bytes, std::size_t taken,
                   Audience audience) noexcept;
  Result<Shelf*> shelf_on(int node);
  [[nodiscard]] std::vector<Shelf*> shelves() const;
  void give_back(bool only_idle) noexcept;
  void trim_shelves(bool only_idle) noexcept;  // with Ledger::growing held
  void on_new_arena(const Arena& arena);

  const PoolOptions options_;
  const pid_t process_;
  Ledger ledger_;
  Audiences audiences_;
  mutable std::mutex mutex_;                           // guards what follows, up to the next empty line
  std::map<int, std::unique_ptr<Shelf>> other_nodes_;  // whose entries stay
  std::string pages_;
  bool told_ = false;
  PageKind told_kind_ = PageKind::kOrdinary;
  std::unique_ptr<Keeper> keeper_;

  const std::unique_ptr<Shelf> shelf_;  // of the pool's node
};

}  // namespace fairlead::memreg
