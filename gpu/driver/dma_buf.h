// Device memory given to other PCIe devices as a dma-buf: a descriptor that a NIC's driver maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "gpu/driver/driver.h"

namespace fairlead::gpu {

/// What an export begins and ends at a multiple of: the largest page of the hosts there are, of which each smaller one
/// is a part. (Physical memory of a device comes in larger pieces, so what is exported beside the bytes is there.)
inline constexpr std::size_t kExportPage = 65536;
/// Under an IOMMU in full translation a larger range finds no room in one piece.
inline constexpr std::size_t kExportSure = std::size_t{1} << 30;

struct DmaBuf {
  UniqueFd fd;
  std::uint64_t offset = 0;  // of the first byte that was asked for, in what it describes
};

/// Exports the pages that hold `bytes`, which are a part of `memory` on device `ordinal`. The descriptor may be closed
/// once it is registered. Errors: kUnimplemented (the device or the driver has none, with the remedy),
/// kResourceExhausted (with the size that would do), kUnavailable (the call failed, or gave nothing).
Result<DmaBuf> export_dma_buf(Driver& driver, int ordinal, std::span<std::byte> bytes);

}  // namespace fairlead::gpu
