// Sums of gradients: what an all-reduce adds, element by element.
#pragma once

#include <cstddef>
#include <span>

#include "fairlead/tensor.h"

namespace fairlead::bench {

/// Whether add() knows the type: kF32, kF16, kBF16.
[[nodiscard]] bool can_add(DType dtype) noexcept;

/// into[i] += from[i] for `count` elements; the two may not overlap. F16 and BF16 are added as F32 and rounded to
/// nearest, ties to even; NaNs stay NaNs. `dtype` as can_add() says.
void add(DType dtype, std::byte* into, const std::byte* from, std::size_t count) noexcept;

/// Fills whole elements with a number from 0 to 256, which each of the types holds exactly: sums of such can be
/// verified.
void fill(DType dtype, std::span<std::byte> into, unsigned number) noexcept;
/// The index of the first element that is not `number`; how many there are if all are.
[[nodiscard]] std::size_t find_other(DType dtype, std::span<const std::byte> in, unsigned number) noexcept;

}  // namespace fairlead::bench
