#include "memreg/shelf.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace fairlead::memreg {
namespace {

// Bytes of a class that wait for threads; more goes to the runs. Where those lack room they take all of it.
constexpr std::size_t kMostOfList = std::size_t{64} << 20;

// Twice in PoolOptions::idle: so that an arena that was in use right before the first of them is unused for so long.
constexpr unsigned kIdleRounds = 3;

std::atomic<std::uint64_t> next_number{1};

std::size_t slab_bytes() noexcept { return std::max(kSlabBytes, page_size()); }
bool is_small(std::size_t index) noexcept { return class_bytes_of(index) < page_size(); }

PageRuns::Page page_of(const std::byte* at) noexcept { return reinterpret_cast<std::uintptr_t>(at) / page_size(); }
std::size_t page_in(const ArenaEntry& arena, const std::byte* at) noexcept {
  return static_cast<std::size_t>(at - arena.memory.bytes().data()) / page_size();
}
std::byte* slab_of(std::byte* at) noexcept { return at - reinterpret_cast<std::uintptr_t>(at) % slab_bytes(); }

// Who left something in the pages that hold [begin, begin + bytes).
Audience left_in(const ArenaEntry& arena, const std::byte* begin, std::size_t bytes) noexcept {
  Audience left = Audience::kNobody;
  const std::size_t last = page_in(arena, begin + bytes - 1);
  for (std::size_t page = page_in(arena, begin); page <= last; ++page) left = both(left, arena.left[page]);
  return left;
}

bool any_fresh(const ArenaEntry& arena, const std::byte* begin, std::size_t bytes) noexcept {
  const auto pages = std::span(arena.left).subspan(page_in(arena, begin), bytes / page_size());
  return std::find(pages.begin(), pages.end(), Audience::kNobody) != pages.end();
}

}  // namespace

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

Status Ledger::reserve(std::size_t size) {
  for (std::size_t held = bytes.load(std::memory_order_relaxed);;) {
    if (max_bytes != 0 && (size > max_bytes || held > max_bytes - size)) {
      return {Code::kResourceExhausted,
              fmt::format("cannot take {} bytes more: the pool holds {} of at most {} bytes; free buffers, or raise "
                          "pool_max_bytes",
                          size, held, max_bytes)};
    }
    if (bytes.compare_exchange_weak(held, held + size, std::memory_order_relaxed)) return {};
  }
}

Shelf::Shelf(Ledger& ledger, int node, bool is_wish)
    : ledger_(ledger), node_(node), node_is_wish_(is_wish), number_(next_number.fetch_add(1)), process_(::getpid()) {}

Shelf::~Shelf() {
  const bool alone = ::getpid() != process_;
  for (const auto& cache : caches_) cache->abandon(alone);
  for (const auto& [page, arena] : arenas_) unpoison(arena->memory.bytes());
}

void Shelf::add(std::shared_ptr<ThreadCache> cache) {
  const std::lock_guard lock(caches_mutex_);
  std::erase_if(caches_, [this](const auto& each) {
    if (!each->retired()) return false;
    std::size_t unused = 0;  // it has no blocks
    counts_.add(each->counts(unused));
    return true;
  });
  caches_.push_back(std::move(cache));
}

Shelf::Caches Shelf::caches() {
  const std::lock_guard lock(caches_mutex_);
  return caches_;
}

// ---- blocks of a class

std::size_t Shelf::grab(std::size_t index, std::span<FreeBlock> out) noexcept {
  List& list = lists_[index];
  const std::lock_guard lock(list.lock);
  list.used = true;
  const std::size_t count = std::min(out.size(), list.blocks.size());
  std::copy_n(list.blocks.end() - static_cast<std::ptrdiff_t>(count), count, out.begin());
  list.blocks.resize(list.blocks.size() - count);
  return count;
}

void Shelf::put(std::size_t index, std::span<const FreeBlock> blocks) noexcept {
  List& list = lists_[index];
  std::size_t kept = blocks.size();
  {
    const std::lock_guard lock(list.lock);
    list.used = true;
    if (!is_small(index)) {  // small blocks are no use to runs one by one
      const std::size_t most = kMostOfList / class_bytes_of(index);
      kept = std::min(kept, most - std::min(most, list.blocks.size()));
    }
    list.blocks.insert(list.blocks.end(), blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  const std::span<const FreeBlock> surplus = blocks.subspan(kept);
  if (!surplus.empty()) dissolve(index, {surplus.begin(), surplus.end()});
}

std::optional<Shelf::Carved> Shelf::carve(std::size_t index) {
  const std::size_t class_bytes = class_bytes_of(index);
  if (!is_small(index)) {
    auto run = take_free_run(class_bytes, page_size());
    if (!run) return std::nullopt;
    run->left_by = left_in(*run->arena, run->data, class_bytes);
    return Carved{*run, {run->data, class_bytes}, any_fresh(*run->arena, run->data, class_bytes)};
  }
  const auto slab = take_free_run(slab_bytes(), slab_bytes());
  if (!slab) return std::nullopt;
  std::vector<FreeBlock> blocks;
  for (std::size_t at = 0; at + class_bytes <= slab_bytes(); at += class_bytes) {
    std::byte* const data = slab->data + at;
    blocks.push_back({data, slab->arena, left_in(*slab->arena, data, class_bytes)});
  }
  // What is behind the last block is handed out to nobody, but will be once the slab is a run again.
  const std::size_t used = slab_bytes() / class_bytes * class_bytes;
  if (const std::span<std::byte> behind(slab->data + used, slab_bytes() - used);
      !behind.empty() && left_in(*slab->arena, behind.data(), behind.size()) != Audience::kNobody) {
    unpoison(behind);
    std::memset(behind.data(), 0, behind.size());
    poison(behind);
  }
  std::reverse(blocks.begin(), blocks.end());  // the first is taken first
  const Carved carved{blocks.back(), {slab->data, slab_bytes()}, any_fresh(*slab->arena, slab->data, slab_bytes())};
  blocks.pop_back();
  put(index, blocks);
  return carved;
}

Result<Shelf::Carved> Shelf::find_or_grow(std::size_t index) {
  std::optional<Carved> found;
  const Status grown = grow([&] {
    if (FreeBlock block; grab(index, {&block, 1}) == 1) {
      found = Carved{block, {}, false};
    } else {
      found = carve(index);
    }
    return found.has_value();
  });
  if (!grown.ok()) return grown;
  return *found;
}

// To runs: page blocks at once, small ones when their slab is complete; the rest stays in the list.
void Shelf::dissolve(std::size_t index, std::vector<FreeBlock> blocks) noexcept {
  const std::size_t class_bytes = class_bytes_of(index);
  if (!is_small(index)) {
    const std::lock_guard lock(mutex_);
    for (const FreeBlock& block : blocks) give_pages(block, class_bytes);
    return;
  }
  std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return std::less<>()(a.data, b.data); });
  std::vector<FreeBlock> rest;
  for (auto at = blocks.begin(); at != blocks.end();) {
    FreeBlock slab{slab_of(at->data), at->arena, at->left_by};
    auto end = at;
    for (; end != blocks.end() && slab_of(end->data) == slab.data; ++end) {
      if (end->left_by != slab.left_by) slab.left_by = Audience::kUnnamed;
    }
    if (static_cast<std::size_t>(end - at) == slab_bytes() / class_bytes) {
      const std::lock_guard lock(mutex_);
      give_pages(slab, slab_bytes());
    } else {
      rest.insert(rest.end(), at, end);
    }
    at = end;
  }
  if (rest.empty()) return;
  List& list = lists_[index];
  const std::lock_guard lock(list.lock);
  list.blocks.insert(list.blocks.end(), rest.begin(), rest.end());
}

void Shelf::dissolve_all(const Caches& caches, bool only_idle) noexcept {
  for (const auto& cache : caches) {
    cache->empty(only_idle, [this](std::size_t index, std::span<const FreeBlock> out) {
      dissolve(index, {out.begin(), out.end()});
    });
  }
  for (std::size_t index = 0; index < kClasses; ++index) {
    std::vector<FreeBlock> blocks;
    {
      List& list = lists_[index];
      const std::lock_guard lock(list.lock);
      if (!only_idle || !list.used) blocks.swap(list.blocks);
      if (only_idle) list.used = false;
    }
    if (!blocks.empty()) dissolve(index, std::move(blocks));
  }
}

// ---- runs of pages

ArenaEntry* Shelf::arena_of(PageRuns::Page page) noexcept { return std::prev(arenas_.upper_bound(page))->second.get(); }

void Shelf::give_pages(const FreeBlock& block, std::size_t bytes) noexcept {
  ArenaEntry& arena = *block.arena;
  const std::size_t first = page_in(arena, block.data);
  std::fill_n(arena.left.begin() + static_cast<std::ptrdiff_t>(first), bytes / page_size(), block.left_by);
  runs_.give(page_of(block.data), bytes / page_size());
}

std::optional<FreeBlock> Shelf::take_free_run(std::size_t bytes, std::size_t alignment) noexcept {
  const std::lock_guard lock(mutex_);
  const auto page = runs_.take(bytes / page_size(), alignment / page_size());
  if (!page) return std::nullopt;
  ArenaEntry* const arena = arena_of(*page);
  arena->idle_rounds = 0;
  std::byte* const begin = arena->memory.bytes().data();
  return FreeBlock{begin + (*page - page_of(begin)) * page_size(), arena, Audience::kNobody};
}

Result<FreeBlock> Shelf::take_run(std::size_t bytes, std::size_t alignment) {
  std::optional<FreeBlock> found = take_free_run(bytes, alignment);
  if (found) return *found;
  const Status grown = grow([&] {
    found = take_free_run(bytes, alignment);
    return found.has_value();
  });
  if (!grown.ok()) return grown;
  return *found;
}

void Shelf::give_run(const FreeBlock& block, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  give_pages(block, bytes);
}

// ---- growing

// One at a time: who comes while another makes an arena takes of that.
template <typename Take>
Status Shelf::grow(const Take& take) {
  const std::lock_guard growing(ledger_.growing);
  if (take()) return {};
  dissolve_all(caches(), false);  // what threads and lists keep may be all that is missing
  while (!take()) {               // others take of a new arena, too
    auto made = make_arena(ledger_.arena_bytes, true, false);
    if (!made) return take_while_nothing_moves(take) ? Status() : made.error();
    add_arena(std::move(*made));
  }
  return {};
}

// No thread begins to use the shelf meanwhile, and none exchanges blocks with it. So what is free is in a cache, in a
// list or in a run, and is found.
template <typename Take>
bool Shelf::take_while_nothing_moves(const Take& take) {
  const std::lock_guard lock(caches_mutex_);
  for (const auto& cache : caches_) cache->moving().lock();
  dissolve_all(caches_, false);
  const bool taken = take();
  for (const auto& cache : caches_) cache->moving().unlock();
  return taken;
}

// ---- arenas

Status Shelf::reserve(std::size_t bytes, bool is_growing) {
  Status room = ledger_.reserve(bytes);
  if (room.ok()) return room;
  std::unique_lock growing(ledger_.growing, std::defer_lock);
  if (!is_growing) growing.lock();
  ledger_.make_room();
  return ledger_.reserve(bytes);
}

// `bytes` are reserved. What rounding to huge pages adds is reserved here, or plainer pages are taken.
Result<Arena> Shelf::map_within_limit(std::size_t bytes, bool shared) {
  for (PageKind best = ledger_.best;;) {
    auto memory = Arena::map(bytes, {.best = best,
                                     .node = node_,
                                     .node_is_wish = node_is_wish_,
                                     .shared = shared,
                                     .readable = ledger_.readable && !shared});
    if (!memory) return memory;
    const std::size_t added = memory->bytes().size() - bytes;
    if (added == 0 || ledger_.reserve(added).ok()) return memory;
    best = plainer_than(memory->pages());
  }
}

Result<std::unique_ptr<ArenaEntry>> Shelf::make_arena(std::size_t bytes, bool cut, bool shared) {
  if (Status room = reserve(bytes, cut); !room.ok()) return room;
  std::size_t reserved = bytes;
  const auto fail = [&](const Status& why) -> Result<std::unique_ptr<ArenaEntry>> {
    ledger_.bytes.fetch_sub(reserved, std::memory_order_relaxed);
    return why;
  };
  auto memory = map_within_limit(bytes, shared);
  if (!memory) return fail(memory.error());
  auto arena = std::make_unique<ArenaEntry>();
  arena->memory = std::move(*memory);
  arena->shelf = this;
  const std::span<std::byte> all = arena->memory.bytes();
  reserved = all.size();
  if (ledger_.hook) {
    auto owner = ledger_.hook(arena->memory);
    if (!owner) return fail(owner.error());
    arena->owner = std::move(*owner);
  }
  arena->cut = cut;
  if (cut) arena->left.assign(all.size() / page_size(), Audience::kNobody);
  ledger_.on_new(arena->memory);
  poison(all);
  return arena;
}

// One that is cut: its pages are free.
void Shelf::add_arena(std::unique_ptr<ArenaEntry> arena) {
  const std::lock_guard lock(mutex_);
  const std::span<std::byte> all = arena->memory.bytes();
  runs_.add(page_of(all.data()), all.size() / page_size());
  arenas_.emplace(page_of(all.data()), std::move(arena));
}

void Shelf::unmap(std::unique_ptr<ArenaEntry> arena) noexcept {
  const std::span<std::byte> all = arena->memory.bytes();
  unpoison(all);  // the address range may be mapped again by someone else
  arena.reset();
  ledger_.bytes.fetch_sub(all.size(), std::memory_order_relaxed);
}

Result<ArenaEntry*> Shelf::take_arena(std::size_t bytes, bool shared) {
  auto made = make_arena(bytes, false, shared);
  if (!made) return made.error();
  ArenaEntry* const arena = made->get();
  const std::lock_guard lock(mutex_);
  arenas_.emplace(page_of(arena->memory.bytes().data()), std::move(*made));
  return arena;
}

void Shelf::give_arena(ArenaEntry* arena) noexcept {
  std::unique_ptr<ArenaEntry> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at = arenas_.find(page_of(arena->memory.bytes().data()));
    gone = std::move(at->second);
    arenas_.erase(at);
  }
  unmap(std::move(gone));
}

void Shelf::trim(bool only_idle) noexcept {
  dissolve_all(caches(), only_idle);
  Entries gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = arenas_.begin(); at != arenas_.end();) {
      ArenaEntry& arena = *at->second;
      if (!arena.cut || !runs_.wholly_free(at->first)) {
        arena.idle_rounds = 0;
        ++at;
      } else if (only_idle && ++arena.idle_rounds < kIdleRounds) {
        ++at;
      } else {
        runs_.remove(at->first);
        ++given_back_;
        given_back_bytes_ += arena.memory.bytes().size();
        gone.push_back(std::move(at->second));
        at = arenas_.erase(at);
      }
    }
  }
  for (auto& arena : gone) unmap(std::move(arena));
}

void Shelf::count(const Counts& counts) noexcept {
  const std::lock_guard lock(caches_mutex_);
  counts_.add(counts);
}

Shelf::Stats Shelf::stats() {
  Stats stats;
  {
    // Under the lock, so that a thread that ends meanwhile is not counted twice.
    const std::lock_guard lock(caches_mutex_);
    for (const auto& cache : caches_) stats.counts.add(cache->counts(stats.cached_bytes));
    stats.counts.add(counts_);
    stats.caches = caches_.size();
  }
  for (std::size_t index = 0; index < kClasses; ++index) {
    const std::lock_guard lock(lists_[index].lock);
    stats.cached_bytes += lists_[index].blocks.size() * class_bytes_of(index);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [page, arena] : arenas_) {
    const auto kind = static_cast<std::size_t>(arena->memory.pages());
    ++stats.arenas.at(kind);
    stats.arena_bytes.at(kind) += arena->memory.bytes().size();
  }
  stats.given_back = given_back_;
  stats.given_back_bytes = given_back_bytes_;
  return stats;
}

}  // namespace fairlead::memreg
