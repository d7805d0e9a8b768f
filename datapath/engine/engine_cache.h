// Memory of the application's that it never registered: the engine's registrations behind a cache.
//
// What it gives is local memory of transfers alone: nothing is granted to peers, who would keep a key when the memory
// has changed. Owner: the engine; what it gave keeps the cache, not the engine. Threads: any. Errors: as
// fairlead/engine.h says.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "datapath/region/regions.h"
#include "fairlead/engine.h"
#include "memreg/cache/registration_cache.h"

namespace fairlead::datapath {

class EngineCache {
 public:
  /// The table is there as long as anybody looks for memory here. `max_bytes`: EngineConfig::cached_bytes.
  EngineCache(RegionTable& table, std::size_t max_bytes);

  Result<Memory> find(std::span<std::byte> bytes);
  Result<std::vector<Memory>> find(std::span<const std::span<std::byte>> ranges);
  Status declare(std::span<std::byte> bytes, bool at_once);
  Status withdraw(const std::byte* begin);
  /// Nothing is found any more.
  void close() noexcept { cache_->close(); }
  [[nodiscard]] CacheCounters counters() const;

 private:
  [[nodiscard]] Memory memory_of(memreg::cache::Lease lease, std::span<std::byte> bytes) const;

  std::shared_ptr<memreg::cache::RegistrationCache> cache_;
};

}  // namespace fairlead::datapath
