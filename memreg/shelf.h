// Arenas of one kind (one NUMA node), and the free memory in them: lists of blocks for each class, which threads fill
// and take from in batches, and runs of pages, which large blocks are cut from and to which classes return what they
// do not need. Runs coalesce.
//
// Threads: all members from any thread. While an arena is made, registered or given back Ledger::growing alone is held,
// which nobody waits for who finds what he needs; while pages are populated or cleared no lock. Both are done by the
// thread that asks for memory.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/spin_lock.h"
#include "fairlead/status.h"
#include "memreg/arena.h"
#include "memreg/audience.h"
#include "memreg/page_runs.h"
#include "memreg/size_class.h"
#include "memreg/thread_cache.h"

namespace fairlead::memreg {

/// Called once for every new arena, to register it; what it returns is destroyed before the arena is unmapped.
/// Called on the thread that allocates. It must not take memory of the pool: others may wait for the arena.
using ArenaHook = std::function<Result<std::shared_ptr<void>>(const Arena& arena)>;

struct ArenaEntry {
  Arena memory;
  std::shared_ptr<void> owner;  // what the hook returned; after `memory`: destroyed first
  Shelf* shelf = nullptr;
  bool cut = false;            // into blocks; else it is one block's own
  std::vector<Audience> left;  // by whom, for each page of `memory` that is free in runs; guarded by who has the page
  unsigned idle_rounds = 0;    // that it was wholly free; guarded by the shelf
};

/// What the shelves of a pool share.
struct Ledger {
  std::size_t arena_bytes = 0;  // of an arena that is cut up
  std::size_t max_bytes = 0;    // of all arenas; 0: no limit
  PageKind best = PageKind::kOrdinary;
  bool readable = false;  // arenas that are not shared by request
  ArenaHook hook;
  std::function<void()> make_room;           // gives idle arenas back; with `growing` held
  std::function<void(const Arena&)> on_new;  // an arena is there
  std::atomic<std::size_t> bytes{0};         // of all arenas
  // Held while a shelf grows, or what is free is collected: what is missing may be on its way, or in another's hands.
  std::mutex growing;

  /// Counts `size` more if that is within the limit, else says so.
  [[nodiscard]] Status reserve(std::size_t size);
};

class Shelf {
 public:
  struct Stats {
    std::array<std::size_t, kPageKinds.size()> arenas{}, arena_bytes{};  // by PageKind
    Counts counts;
    std::size_t cached_bytes = 0;
    std::size_t caches = 0;                              // of threads
    std::uint64_t given_back = 0, given_back_bytes = 0;  // idle arenas, ever
  };
  struct Carved {
    FreeBlock block;
    std::span<std::byte> around;  // the pages that were cut for it
    bool any_fresh = false;       // nobody has touched some of them
  };

  /// `is_wish`: ArenaOptions::node_is_wish.
  Shelf(Ledger& ledger, int node, bool is_wish);
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf();

  /// Never the same for two, nor again; not 0.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  // --- blocks of a class
  /// Up to out.size() of them, from those that threads gave back.
  [[nodiscard]] std::size_t grab(std::size_t index, std::span<FreeBlock> out) noexcept;
  void put(std::size_t index, std::span<const FreeBlock> blocks) noexcept;
  /// A new one, of pages that are free; nullopt: there are none.
  std::optional<Carved> carve(std::size_t index);
  /// One from wherever there is one, else from a new arena. Errors: Arena's, the hook's, the limit's.
  Result<Carved> find_or_grow(std::size_t index);

  // --- runs of pages
  /// `bytes`: whole pages, at most an arena with `alignment`, which is a page or more. The pages' `left` say what to
  /// clear. Errors: as find_or_grow()'s.
  Result<FreeBlock> take_run(std::size_t bytes, std::size_t alignment);
  /// `left_by`: whoever had all of it.
  void give_run(const FreeBlock& block, std::size_t bytes) noexcept;

  // --- arenas of one block
  Result<ArenaEntry*> take_arena(std::size_t bytes, bool shared);
  void give_arena(ArenaEntry* arena) noexcept;

  /// Returns free blocks to runs, and arenas that are wholly free to the system. `only_idle`: blocks that nobody
  /// touched since the last such round, and arenas that are wholly free for the third time. With Ledger::growing held.
  void trim(bool only_idle) noexcept;
  void count(const Counts& counts) noexcept;
  [[nodiscard]] Stats stats();

  /// Of a thread that begins to use it.
  void add(std::shared_ptr<ThreadCache> cache);

 private:
  struct List {
    SpinLock lock;  // guards what follows
    bool used = false;
    std::vector<FreeBlock> blocks;
  };
  using Entries = std::vector<std::unique_ptr<ArenaEntry>>;

  using Caches = std::vector<std::shared_ptr<ThreadCache>>;

  [[nodiscard]] Caches caches();
  [[nodiscard]] std::optional<FreeBlock> take_free_run(std::size_t bytes, std::size_t alignment) noexcept;
  /// Until take() is true, which takes what is wanted if it is there.
  template <typename Take>
  Status grow(const Take& take);
  template <typename Take>
  bool take_while_nothing_moves(const Take& take);
  Status reserve(std::size_t bytes, bool is_growing);
  Result<Arena> map_within_limit(std::size_t bytes, bool shared);
  Result<std::unique_ptr<ArenaEntry>> make_arena(std::size_t bytes, bool cut, bool shared);
  void add_arena(std::unique_ptr<ArenaEntry> arena);
  void unmap(std::unique_ptr<ArenaEntry> arena) noexcept;
  /// Returns blocks to runs, as far as they make whole pages.
  void dissolve(std::size_t index, std::vector<FreeBlock> blocks) noexcept;
  void dissolve_all(const Caches& caches, bool only_idle) noexcept;
  void give_pages(const FreeBlock& block, std::size_t bytes) noexcept;  // under mutex_
  [[nodiscard]] ArenaEntry* arena_of(PageRuns::Page page) noexcept;     // under mutex_

  Ledger& ledger_;
  const int node_;
  const bool node_is_wish_;
  const std::uint64_t number_;
  const pid_t process_;

  std::mutex caches_mutex_;
  Caches caches_;  // under caches_mutex_
  Counts counts_;  // under caches_mutex_: of threads that are forgotten, and that have no cache

  std::array<List, kClasses> lists_;

  std::mutex mutex_;  // guards what follows
  PageRuns runs_;
  std::map<PageRuns::Page, std::unique_ptr<ArenaEntry>> arenas_;  // by their first page
  std::uint64_t given_back_ = 0, given_back_bytes_ = 0;
};

/// Under AddressSanitizer, whoever touches the bytes is told; elsewhere nothing.
void poison(std::span<std::byte> bytes) noexcept;
void unpoison(std::span<std::byte> bytes) noexcept;

}  // namespace fairlead::memreg
