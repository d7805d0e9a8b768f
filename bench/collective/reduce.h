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

/// Fills whole elements: element i with `number` times 1, 2, 3 or 4, as i says. Up to 256 each type holds all of them
/// exactly, so that sums can be verified; and bytes that went to another place are seen.
void fill(DType dtype, std::span<std::byte> into, unsigned number) noexcept;
/// The index of the first element that is not as fill() makes it; how many there are if all are.
[[nodiscard]] std::size_t find_other(DType dtype, std::span<const std::byte> in, unsigned number) noexcept;
/// The largest number that fill() may be given.
inline constexpr unsigned kMostFilled = 64;

}  // namespace fairlead::bench
