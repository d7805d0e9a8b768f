// A pool's arenas: the NUMA node that they are made on, and where they are.
//
// Threads: any. Owner: the pool's hook and the engine, together, since a pool outlives its engine while somebody holds
// a buffer of it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::datapath {

class PoolPlacement : public std::enable_shared_from_this<PoolPlacement> {
 public:
  /// nullopt: not bound.
  explicit PoolPlacement(std::optional<unsigned> node) noexcept : node_(node) {}

  [[nodiscard]] std::optional<unsigned> node() const noexcept { return node_; }
  /// An arena is looked at from now on, until the result goes, which stands for `owner`.
  [[nodiscard]] std::shared_ptr<void> watch(std::span<std::byte> arena, std::shared_ptr<void> owner);

  struct Pages {
    std::vector<std::size_t> on_node;  // by number of the node; a sample of each arena's pages that are there
    Status refused;                    // why pages were not looked at
  };
  /// Where they are, by move_pages.
  [[nodiscard]] Pages look() const;

 private:
  struct Watched;

  const std::optional<unsigned> node_;
  mutable std::mutex mutex_;  // guards what follows; an arena is unmapped after it has left
  std::vector<std::span<std::byte>> arenas_;
};

}  // namespace fairlead::datapath
