// A region of a peer's, as the peer described it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/memory.h"
#include "fairlead/tensor.h"

namespace fairlead::datapath {

/// Of an engine, as far as its peers go along: transports in a Hello, keys of a region.
inline constexpr std::size_t kMaxOffers = 64;

/// What the owner of a published region told us about it. Immutable but for `gone`.
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
  std::vector<Key> keys;  // by the owner's transport index; none beyond: it cannot be reached there
  // The owner refused an operation that was within what it published, or said that it is withdrawn. On a queue pair a
  // refusal costs the path, so it is not asked again: what is published anew is another region.
  enum class Gone : std::uint8_t { kNot, kRefused, kWithdrawn };
  mutable std::atomic<Gone> gone{Gone::kNot};

  [[nodiscard]] bool is_gone() const noexcept { return gone.load(std::memory_order_relaxed) != Gone::kNot; }
  [[nodiscard]] Key key(std::size_t transport) const noexcept {
    return transport < keys.size() ? keys[transport] : Key{};
  }
};

/// Why an operation on a region that is gone fails.
[[nodiscard]] std::string gone_because(std::string_view owner, const RemoteRegionImpl& region);

}  // namespace fairlead::datapath
