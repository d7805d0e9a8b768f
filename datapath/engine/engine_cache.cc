#include "datapath/engine/engine_cache.h"

#include <utility>

#include "datapath/engine/handles.h"

namespace fairlead::datapath {

using memreg::cache::Lease;
using memreg::cache::Piece;
using memreg::cache::RegistrationCache;

EngineCache::EngineCache(RegionTable& table, std::size_t max_bytes)
    : cache_(std::make_shared<RegistrationCache>(
          memreg::cache::CacheConfig{.max_bytes = max_bytes,
                                     .device_most_bytes = [&table] { return table.largest_range(); }},
          [&table](std::span<std::byte> bytes) -> Result<std::shared_ptr<void>> {
            Result<std::shared_ptr<RegisteredRange>> range = table.add({.bytes = bytes});
            if (!range) return range.error();
            return std::shared_ptr<void>(*std::move(range));
          })) {}

Memory EngineCache::memory_of(Lease lease, std::span<std::byte> bytes) const {
  struct Kept {
    std::shared_ptr<RegistrationCache> cache;
    Lease lease;  // goes first
  };
  const memreg::cache::Range wanted = memreg::cache::range_of(bytes);
  const Piece& first = lease.piece_at(wanted.begin);
  auto range = std::static_pointer_cast<RegisteredRange>(first.registration);
  std::vector<std::shared_ptr<RegisteredRange>> more;
  for (const Piece& each : lease.pieces()) {
    if (each.range.begin > first.range.begin && each.range.begin < wanted.end) {
      more.push_back(std::static_pointer_cast<RegisteredRange>(each.registration));
    }
  }
  auto keeper = std::make_shared<Kept>(Kept{cache_, std::move(lease)});
  return make_memory(std::make_shared<RegionImpl>(std::move(range), bytes, Access::kNone, std::move(keeper),
                                                  PoolOrigin{}, std::move(more)),
                     bytes);
}

Result<Memory> EngineCache::find(std::span<std::byte> bytes) {
  Result<Lease> lease = cache_->find(bytes);
  if (!lease) return lease.error();
  return memory_of(*std::move(lease), bytes);
}

Result<std::vector<Memory>> EngineCache::find(std::span<const std::span<std::byte>> ranges) {
  Result<std::vector<Lease>> leases = cache_->find(ranges);
  if (!leases) return leases.error();
  std::vector<Memory> memories;
  memories.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) memories.push_back(memory_of(std::move((*leases)[i]), ranges[i]));
  return memories;
}

Status EngineCache::declare(std::span<std::byte> bytes, bool at_once) {
  return cache_->declare(bytes, at_once ? RegistrationCache::When::kNow : RegistrationCache::When::kFirstUse);
}

Status EngineCache::withdraw(const std::byte* begin) { return cache_->withdraw(begin); }

CacheCounters EngineCache::counters() const {
  const memreg::cache::CacheStats stats = cache_->stats();
  return {.hits = stats.hits + stats.declared_hits,
          .misses = stats.misses,
          .evicted = stats.evicted,
          .invalidated = stats.invalidated,
          .registrations = stats.entries,
          .bytes = stats.pinned_bytes};
}

}  // namespace fairlead::datapath
