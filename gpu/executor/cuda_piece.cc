#include "gpu/executor/cuda_piece.h"

#include <fmt/format.h>

#include <utility>

namespace fairlead::gpu {
namespace {

/// What CUDA looks for a wish by. Fewer addresses it gives out of what it has, wherever that is.
constexpr std::uint64_t kWishable = std::uint64_t{32} << 20;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t multiple) noexcept {
  return (bytes + multiple - 1) / multiple * multiple;
}

Status not_to_be_had(std::uint64_t bytes, const Status& why) {
  return {why.code(),
          fmt::format("a session's {} bytes are not to be had on the device: {}; lower memory_bytes, or end "
                      "other sessions",
                      bytes, why.message())};
}

}  // namespace

Result<std::unique_ptr<CudaPiece>> CudaPiece::allocate(CudaContext& context, std::uint64_t bytes) {
  std::unique_ptr<CudaPiece> piece(new CudaPiece(context));
  CuAddress base = 0;
  if (Status fine = context.driver()->check(context.api().memory_alloc(&base, bytes), "cuMemAlloc"); !fine.ok()) {
    return not_to_be_had(bytes, fine);
  }
  piece->base_ = base;
  if (Status fine = piece->clear(bytes); !fine.ok()) return fine;
  return piece;
}

bool CudaPiece::maps(const Driver& driver, int ordinal) noexcept {
  const DriverApi& api = driver.api();
  CuDevice device = 0;
  int can = 0;
  return api.address_reserve != nullptr && api.address_free != nullptr && api.memory_create != nullptr &&
         api.memory_release != nullptr && api.memory_map != nullptr && api.memory_unmap != nullptr &&
         api.memory_access != nullptr && api.memory_granularity != nullptr &&
         api.device_get(&device, ordinal) == CuResult::kSuccess &&
         api.device_attribute(&can, kAttributeMapping, device) == CuResult::kSuccess && can != 0;
}

Result<std::unique_ptr<CudaPiece>> CudaPiece::map(CudaContext& context, int ordinal, std::uint64_t bytes,
                                                  std::uint64_t wish) {
  std::unique_ptr<CudaPiece> piece(new CudaPiece(context));
  if (Status fine = piece->map(ordinal, bytes, wish); !fine.ok()) return not_to_be_had(bytes, fine);
  if (Status fine = piece->clear(piece->mapped_); !fine.ok()) return fine;  // kernels reach all of it
  return piece;
}

Status CudaPiece::map(int ordinal, std::uint64_t bytes, std::uint64_t wish) {
  const DriverApi& api = context_.api();
  const auto check = [this](CuResult result, const char* call) { return context_.driver()->check(result, call); };
  const CuMemoryKind kind{.device = {kLocationDevice, ordinal}};
  std::size_t grain = 0;
  Status fine = check(api.memory_granularity(&grain, &kind, 0), "cuMemGetAllocationGranularity");
  if (!fine.ok()) return fine;
  const std::uint64_t whole = rounded(bytes, grain), addresses = rounded(whole, kWishable);
  fine = check(api.address_reserve(&base_, addresses, 0, wish, 0), "cuMemAddressReserve");
  if (!fine.ok()) return fine;
  addresses_ = addresses;
  fine = check(api.memory_create(&memory_, whole, &kind, 0), "cuMemCreate");
  if (!fine.ok()) {
    memory_ = 0;
    return fine;
  }
  fine = check(api.memory_map(base_, whole, 0, memory_, 0), "cuMemMap");
  if (!fine.ok()) return fine;
  mapped_ = whole;
  const CuMemoryAccess access{kind.device, kAccessReadWrite};
  return check(api.memory_access(base_, whole, &access, 1), "cuMemSetAccess");
}

/// Before any stream of the session's is there: whoever reads too early or too far reads zeros.
Status CudaPiece::clear(std::uint64_t bytes) {
  Status fine = context_.driver()->check(context_.api().fill(base_, 0, bytes, nullptr), "cuMemsetD8Async");
  if (!fine.ok()) return fine;
  return context_.driver()->check(context_.api().context_synchronize(), "cuCtxSynchronize");
}

CudaPiece::~CudaPiece() {
  const DriverApi& api = context_.api();
  if (addresses_ == 0) {
    if (base_ != 0 && !context_.is_abandoned()) static_cast<void>(api.memory_free(base_));
    return;
  }
  // What is mapped is of no context, and does not go with one.
  if (mapped_ != 0) static_cast<void>(api.memory_unmap(base_, mapped_));
  if (memory_ != 0) static_cast<void>(api.memory_release(memory_));
  static_cast<void>(api.address_free(base_, addresses_));
}

}  // namespace fairlead::gpu
