// How far a tensor's elements lie from its first.
#pragma once

#include <optional>

#include "fairlead/tensor.h"

namespace fairlead {

/// The lowest and the highest element, in elements relative to the first: low <= 0 <= high.
struct TensorReach {
  __int128 low = 0, high = 0;
};

/// Of a tensor with elements, whose rank and shape are legal. Nothing if either is 2^63 elements away or more.
[[nodiscard]] std::optional<TensorReach> reach_of(const TensorSpec& tensor) noexcept;

}  // namespace fairlead
