// The memory of a memif, in numbered regions: what a descriptor may name.
//
// Threads: none of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/system/shared_memory.h"
#include "fairlead/status.h"

namespace fairlead::soft::memif {

class Regions {
 public:
  static constexpr std::size_t kMost = 16;

  /// The peer's, as the next number. Errors: it is not sealed, it has fewer bytes than said, there are too many.
  [[nodiscard]] Status adopt(const UniqueFd& descriptor, std::uint64_t bytes);
  void add(SharedMapping memory) { all_.push_back(std::move(memory)); }

  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  /// The memory there; null where not all of it is a region's.
  [[nodiscard]] std::byte* find(std::uint16_t region, std::uint64_t offset, std::uint64_t length) const noexcept {
    if (region >= all_.size()) return nullptr;
    const SharedMapping& memory = all_[region];
    if (offset > memory.size() || length > memory.size() - offset) return nullptr;
    return memory.get() + offset;
  }
  /// Not in a child of fork().
  [[nodiscard]] bool are_mine() const noexcept { return !all_.empty() && all_.front().is_mine(); }

 private:
  std::vector<SharedMapping> all_;
};

}  // namespace fairlead::soft::memif
