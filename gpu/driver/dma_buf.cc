#include "gpu/driver/dma_buf.h"

#include <fmt/format.h>

namespace fairlead::gpu {

Result<DmaBuf> export_dma_buf(Driver& driver, int ordinal, std::span<std::byte> bytes) {
  const Result<CuContext> context = driver.primary(ordinal);
  if (!context) return context.error();
  const DeviceFacts& device = driver.devices()[static_cast<std::size_t>(ordinal)];
  if (!device.dma_buf) {
    return {
        Code::kUnimplemented,
        fmt::format("CUDA device {} ({}) gives no dma-buf: that needs CUDA 11.7, the open kernel modules of NVIDIA's "
                    "driver, and Linux 5.12",
                    ordinal, device.name)};
  }
  const auto begin = reinterpret_cast<CuAddress>(bytes.data());
  const CuAddress first = begin / kExportPage * kExportPage;
  const CuAddress last = (begin + bytes.size() + kExportPage - 1) / kExportPage * kExportPage;
  const ContextScope scope(driver.api(), *context);
  if (Status fine = driver.check(scope.entered(), "cuCtxPushCurrent"); !fine.ok()) return fine;
  int fd = -1;
  const CuResult result = driver.api().export_range(&fd, first, last - first, kRangeDmaBufFd, 0);
  if (Status fine = driver.check(result, "cuMemGetHandleForAddressRange"); !fine.ok()) {
    if (last - first <= kExportSure) return fine;
    return {fine.code(), fmt::format("{} of {} bytes; under an IOMMU register parts of at most {} bytes each",
                                     fine.message(), last - first, kExportSure)};
  }
  if (fd < 0) return {Code::kUnavailable, "cuMemGetHandleForAddressRange succeeded and gave no descriptor"};
  return DmaBuf{.fd = UniqueFd(fd), .offset = begin - first};
}

}  // namespace fairlead::gpu
