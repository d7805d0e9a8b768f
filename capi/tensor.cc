#include "fairlead/tensor.h"

#include <span>

#include "capi/structures.h"

using namespace fairlead;        // NOLINT(google-build-using-namespace): a translation from one API to the other
using namespace fairlead::capi;  // NOLINT(google-build-using-namespace)

namespace fairlead::capi {

static_assert(FAIRLEAD_MAX_RANK == kMaxTensorRank);
static_assert(FAIRLEAD_F64 == static_cast<int>(DType::kF64) && FAIRLEAD_F16 == static_cast<int>(DType::kF16));

namespace {
/// None, DType{}, for a number that is none.
DType dtype_of(fairlead_dtype dtype) {
  return dtype >= FAIRLEAD_BOOL && dtype <= FAIRLEAD_F64 ? static_cast<DType>(dtype) : DType{};
}
}  // namespace

Status tensor_of(const fairlead_tensor* tensor, TensorSpec& spec) {
  if (tensor == nullptr) return missing("tensor");
  fairlead_tensor known = FAIRLEAD_INIT(fairlead_tensor);
  if (Status status = take(*tensor, known, "fairlead_tensor"); !status.ok()) return status;
  if (known.rank > FAIRLEAD_MAX_RANK) {
    return {Code::kInvalidArgument, "a tensor of rank " + std::to_string(known.rank) + ": at most 8 are possible"};
  }
  spec.dtype = dtype_of(known.dtype);
  if (element_size(spec.dtype) == 0) {
    return {Code::kInvalidArgument, std::to_string(known.dtype) + " is no fairlead_dtype"};
  }
  spec.rank = static_cast<std::uint8_t>(known.rank);
  std::copy_n(known.shape, FAIRLEAD_MAX_RANK, spec.shape.begin());
  std::copy_n(known.strides, FAIRLEAD_MAX_RANK, spec.strides.begin());
  spec.offset = known.offset;
  return {};
}

Status give_tensor(const TensorSpec& spec, fairlead_tensor* tensor) {
  fairlead_tensor full = FAIRLEAD_INIT(fairlead_tensor);
  full.dtype = static_cast<fairlead_dtype>(spec.dtype);
  full.rank = spec.rank;
  std::copy_n(spec.shape.begin(), FAIRLEAD_MAX_RANK, full.shape);
  std::copy_n(spec.strides.begin(), FAIRLEAD_MAX_RANK, full.strides);
  full.offset = spec.offset;
  return give(full, tensor, "fairlead_tensor");
}

}  // namespace fairlead::capi

uint32_t fairlead_dtype_size(fairlead_dtype dtype) { return element_size(dtype_of(dtype)); }
const char* fairlead_dtype_name(fairlead_dtype dtype) { return to_string(dtype_of(dtype)).data(); }

fairlead_code fairlead_dtype_from_name(const char* name, fairlead_dtype* dtype) {
  return outcome([&]() -> Status {
    if (dtype == nullptr) return missing("dtype");
    *dtype = static_cast<fairlead_dtype>(0);  // which is none
    const auto found = dtype_from_string(text_of(name));
    if (!found) return {Code::kNotFound, "'" + std::string(text_of(name)) + "' is no dtype: F32, BF16, I64 are"};
    *dtype = static_cast<fairlead_dtype>(*found);
    return {};
  });
}

fairlead_code fairlead_tensor_contiguous(fairlead_dtype dtype, const int64_t* shape, uint32_t rank, uint64_t offset,
                                         fairlead_tensor* tensor) {
  return outcome([&]() -> Status {
    if (shape == nullptr && rank > 0) return missing("shape");
    auto spec = TensorSpec::contiguous(dtype_of(dtype), {shape, rank}, offset);
    return spec ? give_tensor(*spec, tensor) : spec.error();
  });
}

fairlead_code fairlead_tensor_check(const fairlead_tensor* tensor, uint64_t region_bytes) {
  return outcome([&]() -> Status {
    TensorSpec spec;
    if (Status status = tensor_of(tensor, spec); !status.ok()) return status;
    return spec.check(region_bytes);
  });
}

uint64_t fairlead_tensor_bytes(const fairlead_tensor* tensor) {
  return value_of(std::uint64_t{0}, [&]() -> std::uint64_t {
    TensorSpec spec;
    return tensor_of(tensor, spec).ok() ? spec.byte_count() : 0;
  });
}
