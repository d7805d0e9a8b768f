// A region of a peer's, as the peer described it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "datapath/region/regions.h"
#include "fairlead/memory.h"
#include "fairlead/tensor.h"

namespace fairlead::datapath {

/// What the owner of a published region told us about it. Immutable but for `refused`.
struct RemoteRegionImpl {
  std::string name;
  std::uint64_t id = 0;
  std::uint64_t session = 0;  // the session that learned it
  std::uint64_t size = 0;
  Access access = Access::kNone;
  std::optional<TensorSpec> tensor;
  struct Key {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
  };
  std::array<Key, kMaxTransports> keys{};  // by the owner's transport index
  // The owner refused an operation that was within what it published. On a queue pair that costs the path, so it is not
  // asked again: what is published anew is another region.
  mutable std::atomic<bool> refused{false};
};

/// Why an operation on a region that was refused once fails.
[[nodiscard]] std::string refusal_of(std::string_view owner, const RemoteRegionImpl& region);

}  // namespace fairlead::datapath
