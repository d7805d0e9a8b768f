#include "datapath/transfer/tensor_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/tensor_reach.h"

namespace fairlead::datapath {
namespace {

struct Dimension {
  std::int64_t count;
  std::int64_t stride_a;  // bytes
  std::int64_t stride_b;
};

/// Drops dimensions of one element and joins those that are adjacent in both layouts.
std::vector<Dimension> coalesce(const TensorSpec& a, const TensorSpec& b) {
  const auto size = static_cast<std::int64_t>(element_size(a.dtype));
  std::vector<Dimension> dims;
  for (std::size_t i = 0; i < a.rank; ++i) {
    if (a.shape[i] == 1) continue;
    const Dimension next{a.shape[i], a.strides[i] * size, b.strides[i] * size};
    if (!dims.empty() && dims.back().stride_a == next.count * next.stride_a &&
        dims.back().stride_b == next.count * next.stride_b) {
      dims.back() = {dims.back().count * next.count, next.stride_a, next.stride_b};
    } else {
      dims.push_back(next);
    }
  }
  return dims;
}

}  // namespace

Status check_target(const TensorSpec& tensor) {
  const std::uint64_t elements = tensor.element_count();
  if (elements == 0) return {};
  const auto [low, high] = *reach_of(tensor);
  const __int128 places = high - low + 1;
  if (places >= elements) return {};
  return {Code::kInvalidArgument,
          fmt::format("tensor {} has {} elements in {} places: its strides make them overlap, which a target's may not",
                      tensor.to_string(), elements, static_cast<std::uint64_t>(places))};
}

Result<std::vector<TensorRun>> plan_tensor(const TensorSpec& a, const TensorSpec& b, std::size_t limit) {
  if (a.dtype != b.dtype || a.rank != b.rank ||
      !std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin())) {
    return Status(Code::kInvalidArgument,
                  fmt::format("tensors differ: {} here, {} there", a.to_string(), b.to_string()));
  }
  std::vector<TensorRun> runs;
  if (a.element_count() == 0) return runs;
  std::vector<Dimension> dims = coalesce(a, b);
  const auto size = static_cast<std::int64_t>(element_size(a.dtype));
  auto run = static_cast<std::uint64_t>(size);
  if (!dims.empty() && dims.back().stride_a == size && dims.back().stride_b == size) {
    run *= static_cast<std::uint64_t>(dims.back().count);
    dims.pop_back();
  }
  std::uint64_t count = 1;
  for (const Dimension& d : dims) count *= static_cast<std::uint64_t>(d.count);
  if (count > limit) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{} takes {} pieces of {} bytes between these layouts, the limit is {}; make one side "
                              "contiguous first",
                              a.to_string(), count, run, limit));
  }
  runs.reserve(count);
  std::vector<std::int64_t> index(dims.size(), 0);
  auto at_a = static_cast<std::int64_t>(a.offset);
  auto at_b = static_cast<std::int64_t>(b.offset);
  while (true) {
    runs.push_back({static_cast<std::uint64_t>(at_a), static_cast<std::uint64_t>(at_b), run});
    std::size_t d = dims.size();
    while (d != 0) {
      --d;
      at_a += dims[d].stride_a;
      at_b += dims[d].stride_b;
      if (++index[d] < dims[d].count) break;
      at_a -= dims[d].count * dims[d].stride_a;
      at_b -= dims[d].count * dims[d].stride_b;
      index[d] = 0;
      if (d == 0) return runs;
    }
    if (dims.empty()) return runs;
  }
}

}  // namespace fairlead::datapath
