#include "gpu/executor/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpu/executor/refuse.h"

namespace fairlead::gpu {

using command::Handle;
using command::Outcome;

Result<std::unique_ptr<CudaMemory>> CudaMemory::reserve(CudaContext& context, std::uint64_t bytes,
                                                        std::size_t allocations) {
  const std::uint64_t whole = rounded(bytes);
  Result<std::unique_ptr<CudaPiece>> piece = CudaPiece::allocate(context, whole);
  if (!piece) return piece.error();
  return std::unique_ptr<CudaMemory>(new CudaMemory(*std::move(piece), whole, allocations));
}

Status CudaMemory::move(CudaContext& context, int ordinal, std::uint64_t bytes, std::uint64_t wish) {
  piece_.reset();  // there may be no room for two
  const std::uint64_t whole = rounded(bytes);
  Result<std::unique_ptr<CudaPiece>> piece = CudaPiece::map(context, ordinal, whole, wish);
  bytes_ = piece ? whole : 0;
  free_ = Ranges(bytes_);
  if (!piece) return piece.error();
  piece_ = *std::move(piece);
  return {};
}

Outcome CudaMemory::check_new(Handle handle, std::uint64_t bytes) const {
  if (handle.bits == 0 || bytes == 0) {
    return refuse(command::kInvalidValue, fmt::format("an allocation of {} bytes named {}", bytes, handle.bits));
  }
  if (allocations_.contains(handle.bits)) {
    return refuse(command::kInvalidValue, fmt::format("handle {} names an allocation already", handle.bits));
  }
  if (bytes > bytes_ || rounded(bytes) > bytes_ - allocated_) {
    return refuse(command::kOutOfMemory,
                  fmt::format("{} bytes beside {} of {} that the session may have", bytes, allocated_, bytes_));
  }
  if (allocations_.size() >= most_) {
    return refuse(command::kOutOfMemory, fmt::format("the session has {} allocations, its limit", allocations_.size()));
  }
  return {};
}

Outcome CudaMemory::allocate(Handle handle, std::uint64_t bytes, Given& given) {
  if (Outcome fine = check_new(handle, bytes); !fine.ok()) return fine;
  const std::optional<std::uint64_t> at = free_.take(rounded(bytes));
  if (!at) {
    return refuse(command::kOutOfMemory,
                  fmt::format("the session has {} bytes left, but no more than {} of them in one piece",
                              bytes_ - allocated_, free_.longest()));
  }
  add(handle, *at, bytes, given);
  return {};
}

Outcome CudaMemory::allocate_at(Handle handle, CuAddress address, std::uint64_t bytes, std::uint64_t range,
                                Given& given) {
  if (Outcome fine = check_new(handle, bytes); !fine.ok()) return fine;
  const std::uint64_t at = address - base();
  if (address < base() || at > range || bytes > range - at || at % kAlignment != 0) {
    return refuse(command::kInvalidValue,
                  fmt::format("{} bytes at {:#x}; the place is a multiple of {} within the session's {} bytes at {:#x}",
                              bytes, address, kAlignment, range, base()));
  }
  if (!free_.take_at(at, rounded(bytes))) {
    return refuse(command::kInvalidValue,
                  fmt::format("{} bytes at {:#x} overlap another allocation; what was released by another "
                              "channel is free behind a fence",
                              bytes, address));
  }
  add(handle, at, bytes, given);
  return {};
}

void CudaMemory::add(Handle handle, std::uint64_t at, std::uint64_t bytes, Given& given) {
  const std::uint64_t whole = rounded(bytes);
  allocations_[handle.bits] = {at, bytes};
  allocated_ += whole;
  given = {base() + at, at < untouched_};
  untouched_ = std::max(untouched_, at + whole);
}

Outcome CudaMemory::release(Handle handle) {
  const auto found = allocations_.find(handle.bits);
  if (found == allocations_.end()) {
    return refuse(command::kInvalidHandle, fmt::format("handle {} names no allocation (any more)", handle.bits));
  }
  const std::uint64_t whole = rounded(found->second.bytes);
  free_.give(found->second.at, whole);
  allocated_ -= whole;
  allocations_.erase(found);
  return {};
}

CuAddress CudaMemory::find(Handle handle, std::uint64_t offset, std::uint64_t bytes, Outcome& why) const {
  const auto found = allocations_.find(handle.bits);
  if (found == allocations_.end()) {
    why = refuse(command::kInvalidHandle, fmt::format("handle {} names no allocation (any more)", handle.bits));
    return 0;
  }
  const std::uint64_t size = found->second.bytes;
  if (offset > size || bytes > size - offset) {
    why = refuse(command::kInvalidValue,
                 fmt::format("{} bytes from {} on of allocation {}, which has {}", bytes, offset, handle.bits, size));
    return 0;
  }
  return base() + found->second.at + offset;
}

}  // namespace fairlead::gpu
