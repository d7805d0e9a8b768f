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
  const DriverApi& api = context.api();
  const std::uint64_t whole = rounded(bytes);
  CuAddress base = 0;
  if (Status fine = context.driver()->check(api.memory_alloc(&base, whole), "cuMemAlloc"); !fine.ok()) {
    return Status(fine.code(), fmt::format("a session's {} bytes are not to be had on the device: {}; lower "
                                           "memory_bytes, or end other sessions",
                                           bytes, fine.message()));
  }
  std::unique_ptr<CudaMemory> memory(new CudaMemory(context, base, whole, allocations));
  // Before any stream of the session's is there: whoever reads too early or too far reads zeros.
  if (Status fine = context.driver()->check(api.fill(base, 0, whole, nullptr), "cuMemsetD8Async"); !fine.ok()) {
    return fine;
  }
  if (Status fine = context.driver()->check(api.context_synchronize(), "cuCtxSynchronize"); !fine.ok()) return fine;
  return memory;
}

CudaMemory::~CudaMemory() {
  if (!context_.is_abandoned()) static_cast<void>(context_.api().memory_free(base_));
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
  const std::uint64_t at = address - base_;
  if (address < base_ || at > range || bytes > range - at || at % kAlignment != 0) {
    return refuse(command::kInvalidValue,
                  fmt::format("{} bytes at {:#x}; the place is a multiple of {} within the session's {} bytes at {:#x}",
                              bytes, address, kAlignment, range, base_));
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
  given = {base_ + at, at < untouched_};
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
  return base_ + found->second.at + offset;
}

}  // namespace fairlead::gpu
