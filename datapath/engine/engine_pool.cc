// The engine's pool: memory that is registered by the arena and handed out in blocks.
#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "datapath/engine/engine_impl.h"
#include "datapath/engine/factory.h"
#include "datapath/engine/handles.h"
#include "fairlead/memory.h"
#include "memreg/limits.h"
#include "memreg/pages.h"
#include "memreg/pool.h"

namespace fairlead::datapath {

std::shared_ptr<memreg::Pool> EngineImpl::make_pool() {
  const auto& place = commons_.placement.pool();
  memreg::PoolOptions options{
      .arena_bytes = config().pool_arena_bytes, .max_bytes = config().pool_max_bytes, .readable = gives_pool(config())};
  if (place->node()) options.node = static_cast<int>(*place->node());
  if (config().progress != Progress::kApplication) options.idle = config().pool_idle;  // else no thread is started
  // A pool outlives the engine while somebody holds a buffer of it.
  auto* table = commons_.regions.get();
  auto hook = [table, place](const memreg::Arena& arena) -> Result<std::shared_ptr<void>> {
    const HostMemory kind{.readable_fd = arena.is_readable() ? arena.fd() : -1};
    Result<std::shared_ptr<RegisteredRange>> range =
        table->add({.bytes = arena.bytes(), .kind = kind, .access = Access::kRemoteReadWrite});
    if (!range) return range.error();
    return place->watch(arena.bytes(), *std::move(range));
  };
  return std::make_shared<memreg::Pool>(options, std::move(hook));
}

Result<Memory> EngineImpl::allocate(std::size_t bytes, const AllocateOptions& options) {
  if (Status fits = memreg::check_fits(bytes); !fits.ok()) return fits;
  memreg::Pool::Request request{.alignment = options.alignment, .node = options.node, .shared = options.shared};
  if (options.audience) {
    if (const Status known = commons_.principals.check_audience(*options.audience); !known.ok()) {
      return Status(known.code(), fmt::format("cannot allocate {} bytes: {}", bytes, known.message()));
    }
    request.audience = pool_->audience(*options.audience);
  }
  Result<memreg::Pool::Block> block = pool_->allocate(bytes, request);
  if (!block) return block.error();
  // Destroyed with the last Memory: the block goes back, then the pool may go, then the table.
  struct Holder {
    std::shared_ptr<RegionTable> table;
    std::shared_ptr<memreg::Pool> pool;
    memreg::Pool::Block block;
    ~Holder() {
      if (!table->inherited()) pool->free(block);
    }
  };
  PoolOrigin origin{options.audience, {}};
  if (options.shared) origin.file = {block->fd(), block->fd_offset()};
  auto holder = std::make_shared<Holder>(commons_.regions, pool_, *block);
  std::shared_ptr<RegisteredRange> range(holder, static_cast<RegisteredRange*>(block->owner));
  return make_memory(std::make_shared<RegionImpl>(std::move(range), block->bytes, Access::kRemoteReadWrite, nullptr,
                                                  std::move(origin)),
                     block->bytes.first(bytes));
}

void EngineImpl::trim_pool() { pool_->trim(); }

PoolStats EngineImpl::pool_stats() const {
  const memreg::Pool::Stats pool = pool_->stats();
  PoolStats stats;
  stats.bytes = pool.arena_bytes;
  stats.blocks = pool.blocks;
  stats.used_bytes = pool.used_bytes;
  stats.cached_bytes = pool.cached_bytes;
  stats.given_back = pool.given_back;
  stats.given_back_bytes = pool.given_back_bytes;
  stats.pages = pool.pages;
  for (const memreg::PageKind kind : memreg::kPageKinds) {
    const auto i = static_cast<std::size_t>(kind);
    stats.arenas.push_back({std::string(memreg::to_string(kind)), pool.arenas_of.at(i), pool.bytes_of.at(i)});
  }
  // Before the first arena: what it would get.
  if (stats.pages.empty())
    stats.pages = memreg::choose_pages(config().pool_arena_bytes, memreg::page_supply(-1, gives_pool(config()))).why;
  return stats;
}

}  // namespace fairlead::datapath
