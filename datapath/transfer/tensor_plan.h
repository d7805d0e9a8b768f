// Strided tensors as runs of contiguous bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "fairlead/status.h"
#include "fairlead/tensor.h"

namespace fairlead::datapath {

/// `length` bytes at `a` in the one region and at `b` in the other hold the same elements.
struct TensorRun {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t length = 0;
};

/// Pairs the elements of two tensors of equal dtype and shape in row-major order, in the fewest runs that both layouts
/// allow. Offsets are from the first byte of each region; both specs must have passed TensorSpec::check.
/// Errors: dtypes or shapes differ; more runs than `limit`.
Result<std::vector<TensorRun>> plan_tensor(const TensorSpec& a, const TensorSpec& b, std::size_t limit);

/// Of a tensor that fits its region: whether it may be written. Refuses where elements are sure to share a place, as
/// with a stride of 0; of other layouts that overlap the caller knows best.
Status check_target(const TensorSpec& tensor);

}  // namespace fairlead::datapath
