#include "gpu/driver/pinned.h"

#include <fmt/format.h>

namespace fairlead::gpu {

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(std::shared_ptr<Driver> driver, int ordinal,
                                                             std::size_t bytes) {
  const Result<CuContext> context = driver->primary(ordinal);
  if (!context) return context.error();
  return allocate(std::move(driver), *context, bytes, "cuda_staging_bytes");
}

Result<std::unique_ptr<PinnedMemory>> PinnedMemory::allocate(std::shared_ptr<Driver> driver, CuContext context,
                                                             std::size_t bytes, std::string_view setting) {
  const ContextScope scope(driver->api(), context);
  if (Status fine = driver->check(scope.entered(), "cuCtxPushCurrent"); !fine.ok()) return fine;
  void* memory = nullptr;
  const Status got = driver->check(driver->api().host_alloc(&memory, bytes, kHostAllocPortable), "cuMemHostAlloc");
  if (!got.ok() || memory == nullptr) {
    return Status(got.ok() ? Code::kUnavailable : got.code(),
                  fmt::format("no pinned host memory of {} bytes to copy GPU memory through: {}; lower {}", bytes,
                              got.ok() ? "cuMemHostAlloc succeeded and gave none" : got.message(), setting));
  }
  return std::unique_ptr<PinnedMemory>(
      new PinnedMemory(std::move(driver), context, {static_cast<std::byte*>(memory), bytes}));
}

PinnedMemory::~PinnedMemory() {
  if (left_) return;
  const ContextScope scope(driver_->api(), context_);
  if (scope.entered() == CuResult::kSuccess) static_cast<void>(driver_->api().host_free(bytes_.data()));
}

}  // namespace fairlead::gpu
