#include "datapath/placement/pool_placement.h"

#include <algorithm>
#include <utility>

#include "base/system/numa.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kLookedAt = 256;  // pages of an arena

}  // namespace

/// Leaves the list before the arena is unmapped.
struct PoolPlacement::Watched {
  std::shared_ptr<PoolPlacement> pool;
  std::span<std::byte> arena;
  std::shared_ptr<void> owner;

  Watched(std::shared_ptr<PoolPlacement> of, std::span<std::byte> bytes, std::shared_ptr<void> owned)
      : pool(std::move(of)), arena(bytes), owner(std::move(owned)) {
    const std::lock_guard lock(pool->mutex_);
    pool->arenas_.push_back(arena);
  }
  ~Watched() {
    const std::lock_guard lock(pool->mutex_);
    std::erase_if(pool->arenas_, [this](const auto& each) { return each.data() == arena.data(); });
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

std::shared_ptr<void> PoolPlacement::watch(std::span<std::byte> arena, std::shared_ptr<void> owner) {
  void* const is = owner.get();
  return {std::make_shared<Watched>(shared_from_this(), arena, std::move(owner)), is};
}

PoolPlacement::Pages PoolPlacement::look() const {
  const std::lock_guard lock(mutex_);
  Pages all{.on_node = {}, .refused = {}};
  for (const std::span<std::byte> arena : arenas_) {
    const Result<PagesByNode> pages = pages_by_node(arena, arena.size() / kLookedAt);
    if (!pages) {
      all.refused = pages.error();
      continue;
    }
    all.on_node.resize(std::max(all.on_node.size(), pages->on_node.size()));
    for (std::size_t node = 0; node < pages->on_node.size(); ++node) all.on_node[node] += pages->on_node[node];
  }
  return all;
}

}  // namespace fairlead::datapath
