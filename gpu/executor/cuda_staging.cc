#include "gpu/executor/cuda_staging.h"

#include <algorithm>
#include <optional>

namespace fairlead::gpu {

namespace {
std::size_t rounded(std::size_t bytes) noexcept {
  return (bytes + CudaStaging::kGrain - 1) / CudaStaging::kGrain * CudaStaging::kGrain;
}
}  // namespace

std::vector<std::span<std::byte>> CudaStaging::take(std::size_t bytes) {
  std::vector<std::span<std::byte>> pieces;
  while (bytes != 0) {
    const std::size_t piece = std::min(bytes, kPiece);
    const std::optional<std::uint64_t> at = free_.take(rounded(piece));
    if (!at) {
      for (const std::span<std::byte> taken : pieces) give(taken);
      return {};
    }
    pieces.push_back(memory_->bytes().subspan(*at, piece));
    bytes -= piece;
  }
  return pieces;
}

void CudaStaging::give(std::span<std::byte> piece) noexcept {
  free_.give(static_cast<std::uint64_t>(piece.data() - memory_->bytes().data()), rounded(piece.size()));
}

}  // namespace fairlead::gpu
