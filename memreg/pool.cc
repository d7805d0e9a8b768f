#include "memreg/pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/system/no_thread.h"
#include "base/system/numa.h"
#include "fairlead/log.h"

namespace fairlead::memreg {
namespace {

constexpr std::size_t kMinArenaBytes = std::size_t{64} << 10;
constexpr std::size_t kMostAlignment = std::size_t{1} << 30;
constexpr std::size_t kArenaAlignment = std::size_t{2} << 20;  // of arenas of that size and more

std::size_t address(const std::byte* at) noexcept { return reinterpret_cast<std::uintptr_t>(at); }

// Makes a block of a class fit to be seen by `next`. All of it, so that what is behind `bytes` is no other audience's
// when a longer block of the same audience is made of it; who names none gets what was asked for and no more.
void make_ready(const FreeBlock& block, std::size_t bytes, std::size_t class_bytes, Audience next) noexcept {
  if (!must_clear(block.left_by, next)) {
    unpoison({block.data, bytes});
    return;
  }
  const std::size_t clear = next == Audience::kUnnamed ? bytes : class_bytes;
  unpoison({block.data, clear});
  std::memset(block.data, 0, clear);
  if (clear > bytes) poison({block.data + bytes, clear - bytes});
}

// The same of a run, page by page, and touches what is fresh of it.
void make_run_ready(const FreeBlock& run, std::size_t bytes, Audience next) noexcept {
  const auto first = static_cast<std::size_t>(run.data - run.arena->memory.bytes().data()) / page_size();
  const auto left = std::span(run.arena->left).subspan(first, bytes / page_size());
  for (std::size_t begin = 0, end = 0; begin < left.size(); begin = end) {
    while (end < left.size() && left[end] == left[begin]) ++end;
    const std::span<std::byte> pages(run.data + begin * page_size(), (end - begin) * page_size());
    if (left[begin] == Audience::kNobody) populate(pages);
    if (must_clear(left[begin], next)) std::memset(pages.data(), 0, pages.size());
  }
}

// While blocks are on the way between a thread's cache, if it has one, and the shelf.
class OnTheWay {
 public:
  explicit OnTheWay(ThreadCache* cache) noexcept : cache_(cache) {
    if (cache_ != nullptr) cache_->moving().lock();
  }
  ~OnTheWay() {
    if (cache_ != nullptr) cache_->moving().unlock();
  }
  OnTheWay(const OnTheWay&) = delete;
  OnTheWay& operator=(const OnTheWay&) = delete;

 private:
  ThreadCache* const cache_;
};

// A block of those that threads gave back, and more for the cache. False: there is none.
bool take_batch(Shelf& shelf, ThreadCache* cache, std::size_t index, FreeBlock& block) noexcept {
  ThreadCache::Batch batch;
  const std::size_t wanted = cache == nullptr ? 1 : ThreadCache::most_of(class_bytes_of(index)) / 2;
  const std::size_t count = shelf.grab(index, std::span(batch).first(wanted));
  if (count == 0) return false;
  const auto rest = std::span<const FreeBlock>(batch).first(count - 1);
  const std::size_t kept = cache == nullptr ? 0 : cache->fill(index, rest);
  if (kept < rest.size()) shelf.put(index, rest.subspan(kept));
  block = batch[count - 1];
  return true;
}

}  // namespace

Pool::Pool(const PoolOptions& options, ArenaHook hook)
    : options_(options), process_(::getpid()), shelf_(std::make_unique<Shelf>(ledger_, options.node, true)) {
  ledger_.arena_bytes = round_up(std::max(options.arena_bytes, kMinArenaBytes), page_size());
  ledger_.max_bytes = round_up(options.max_bytes, page_size());  // as arenas are
  ledger_.best = options.best;
  ledger_.readable = options.readable;
  ledger_.hook = std::move(hook);
  ledger_.make_room = [this] { trim_shelves(false); };
  ledger_.on_new = [this](const Arena& arena) { on_new_arena(arena); };
}

Pool::~Pool() {
  if (::getpid() != process_) {
    // A forked child does not have the thread that its destructor would wait for.
    static auto* const of_parents = new std::vector<Keeper*>;
    of_parents->push_back(keeper_.release());
    return;
  }
  keeper_.reset();
  assert(stats().blocks == 0 && "a block outlives its pool");
}

void Pool::on_new_arena(const Arena& arena) {
  const std::lock_guard lock(mutex_);
  pages_ = arena.why();
  if (!told_ || told_kind_ != arena.pages()) {
    log(LogLevel::kInfo, fmt::format("pool: an arena of {} bytes has {}", arena.bytes().size(), pages_));
  }
  told_ = true;
  told_kind_ = arena.pages();
  if (options_.idle.count() > 0 && keeper_ == nullptr) {
    try {
      keeper_ = std::make_unique<Keeper>(std::max(options_.idle / 2, std::chrono::milliseconds(1)), [this] { age(); });
    } catch (const std::system_error& error) {  // the next arena tries again
      log(LogLevel::kWarning, "pool: what is idle is kept for now: " + no_thread("it", error).message());
    }
  }
}

Result<Shelf*> Pool::shelf_on(int node) {
  if (node < 0 || node == options_.node) return shelf_.get();
  const std::lock_guard lock(mutex_);
  if (const auto known = other_nodes_.find(node); known != other_nodes_.end()) return known->second.get();
  if (Status there = check_numa_node(node); !there.ok()) return there;
  return other_nodes_.emplace(node, std::make_unique<Shelf>(ledger_, node, false)).first->second.get();
}

std::vector<Shelf*> Pool::shelves() const {
  std::vector<Shelf*> all{shelf_.get()};
  const std::lock_guard lock(mutex_);
  for (const auto& [node, shelf] : other_nodes_) all.push_back(shelf.get());
  return all;
}

Result<Pool::Block> Pool::allocate(std::size_t bytes, const Request& request) {
  if (bytes == 0) return {Code::kInvalidArgument, "cannot allocate 0 bytes from a pool; ask for 1 or more"};
  const std::size_t alignment = request.alignment;
  if (alignment != 0 && (!std::has_single_bit(alignment) || alignment > kMostAlignment)) {
    return {Code::kInvalidArgument, fmt::format("cannot align {} bytes to {}: ask for a power of two up to {}", bytes,
                                                alignment, kMostAlignment)};
  }
  if (bytes > std::numeric_limits<std::size_t>::max() / 4) return Arena::map(bytes).status();  // why, in its words
  // What is nobody's would come back as if it were all 0.
  const Audience audience = request.audience == Audience::kNobody ? Audience::kUnnamed : request.audience;
  Shelf* shelf = shelf_.get();
  if (request.node >= 0) {
    const auto other = shelf_on(request.node);
    if (!other) return other.error();
    shelf = *other;
  }
  if (request.shared) return allocate_arena(*shelf, bytes, request);
  if (alignment <= page_size()) {
    // A power of two of lines is aligned to itself.
    const bool stricter = bytes < page_size() && alignment > kSmallAlignment;
    const std::size_t class_bytes = class_size(stricter ? std::bit_ceil(std::max(bytes, alignment)) : bytes);
    if (class_bytes <= std::min(kMostClassBytes, ledger_.arena_bytes)) {
      return allocate_block(*shelf, class_bytes, bytes, audience);
    }
  }
  const std::size_t slack = alignment > page_size() ? alignment - page_size() : 0;
  if (round_up(bytes, page_size()) + slack > ledger_.arena_bytes) return allocate_arena(*shelf, bytes, request);
  return allocate_run(*shelf, bytes, alignment, audience);
}

int Pool::Block::fd() const noexcept { return entry_ == nullptr ? -1 : entry_->memory.fd(); }

std::size_t Pool::Block::fd_offset() const noexcept { return static_cast<std::size_t>(bytes.data() - arena.data()); }

// In place: a copy of what was just written piece by piece waits for all of it.
void Pool::fill(Block& block, const FreeBlock& from, std::size_t bytes, std::size_t taken, Audience audience) noexcept {
  block.bytes = {from.data, bytes};
  block.arena = from.arena->memory.bytes();
  block.owner = from.arena->owner.get();
  block.entry_ = from.arena;
  block.taken_ = taken;
  block.audience_ = audience;
}

void Pool::count(Shelf& shelf, std::int64_t by, std::size_t bytes) {
  if (ThreadCache* cache = ThreadCache::of(shelf); cache != nullptr) {
    cache->count(by, bytes);
    return;
  }
  Counts counts;
  counts.add(by, bytes);
  shelf.count(counts);
}

Result<Pool::Block> Pool::allocate_block(Shelf& shelf, std::size_t class_bytes, std::size_t bytes, Audience audience) {
  ThreadCache* const cache = ThreadCache::of(shelf);
  const std::size_t index = class_index(class_bytes);
  FreeBlock from{};
  if (cache == nullptr || !cache->take(index, audience, from)) {
    const auto found = refill(shelf, cache, index);
    if (!found) return found.error();
    from = *found;
    count(shelf, 1, class_bytes);
  }
  make_ready(from, bytes, class_bytes, audience);
  Result<Block> made{Block()};
  fill(*made, from, bytes, class_bytes, audience);
  return made;
}

Result<FreeBlock> Pool::refill(Shelf& shelf, ThreadCache* cache, std::size_t index) {
  std::optional<Shelf::Carved> carved;
  {
    const OnTheWay on_the_way(cache);
    if (FreeBlock found; take_batch(shelf, cache, index, found)) return found;
    carved = shelf.carve(index);
  }
  if (!carved) {
    auto grown = shelf.find_or_grow(index);
    if (!grown) return grown.error();
    carved = *grown;
  }
  if (carved->any_fresh) populate(carved->around);
  return carved->block;
}

Result<Pool::Block> Pool::allocate_run(Shelf& shelf, std::size_t bytes, std::size_t alignment, Audience audience) {
  const std::size_t taken = round_up(bytes, page_size());
  const auto run = shelf.take_run(taken, std::max(alignment, page_size()));
  if (!run) return run.error();
  unpoison({run->data, taken});
  make_run_ready(*run, taken, audience);
  if (taken > bytes) poison({run->data + bytes, taken - bytes});
  count(shelf, 1, taken);
  Block block;
  fill(block, *run, bytes, taken, audience);
  block.kind_ = Block::Kind::kRun;
  return block;
}

Result<Pool::Block> Pool::allocate_arena(Shelf& shelf, std::size_t bytes, const Request& request) {
  const std::size_t pages = round_up(bytes, page_size());
  const std::size_t aligned = pages >= kArenaAlignment ? kArenaAlignment : page_size();
  const std::size_t alignment = std::max(request.alignment, aligned);
  const auto arena = shelf.take_arena(pages + (alignment - aligned), request.shared);
  if (!arena) return arena.error();
  const std::span<std::byte> all = (*arena)->memory.bytes();
  FreeBlock from{all.data() + (round_up(address(all.data()), alignment) - address(all.data())), *arena,
                 Audience::kNobody};
  unpoison({from.data, bytes});
  populate({from.data, pages});
  count(shelf, 1, all.size());
  Block block;
  fill(block, from, bytes, all.size(), request.audience);
  block.kind_ = Block::Kind::kArena;
  return block;
}

void Pool::free(const Block& block) noexcept {
  assert(block.entry_ != nullptr);
  Shelf& shelf = *block.entry_->shelf;
  const FreeBlock freed{block.bytes.data(), block.entry_, block.audience_};
  switch (block.kind_) {
    case Block::Kind::kClass: {
      poison({freed.data, block.taken_});
      const std::size_t index = class_index(block.taken_);
      if (ThreadCache* const cache = ThreadCache::of(shelf); cache != nullptr) [[likely]] {
        cache->give(shelf, index, freed);
      } else {
        shelf.put(index, std::span(&freed, 1));
        count(shelf, -1, block.taken_);
      }
      return;
    }
    case Block::Kind::kRun:
      poison({freed.data, block.taken_});
      shelf.give_run(freed, block.taken_);
      count(shelf, -1, block.taken_);
      return;
    case Block::Kind::kArena:
      shelf.give_arena(block.entry_);
      count(shelf, -1, block.taken_);
      return;
  }
}

void Pool::give_back(bool only_idle) noexcept {
  const std::lock_guard growing(ledger_.growing);
  trim_shelves(only_idle);
}

void Pool::trim_shelves(bool only_idle) noexcept {
  for (Shelf* shelf : shelves()) shelf->trim(only_idle);
}

Pool::Stats Pool::stats() const {
  Stats all;
  Counts counts;
  for (Shelf* shelf : shelves()) {
    const Shelf::Stats each = shelf->stats();
    counts.add(each.counts);
    for (std::size_t kind = 0; kind < kPageKinds.size(); ++kind) {
      all.arenas_of.at(kind) += each.arenas.at(kind);
      all.bytes_of.at(kind) += each.arena_bytes.at(kind);
      all.arenas += each.arenas.at(kind);
      all.arena_bytes += each.arena_bytes.at(kind);
    }
    all.cached_bytes += each.cached_bytes;
    all.caches += each.caches;
    all.given_back += each.given_back;
    all.given_back_bytes += each.given_back_bytes;
  }
  // A block that went from one thread to another may be seen at its end only.
  all.blocks = static_cast<std::size_t>(std::max<std::int64_t>(counts.blocks, 0));
  all.used_bytes = static_cast<std::size_t>(std::max<std::int64_t>(counts.used_bytes, 0));
  const std::lock_guard lock(mutex_);
  all.pages = pages_;
  return all;
}

}  // namespace fairlead::memreg
