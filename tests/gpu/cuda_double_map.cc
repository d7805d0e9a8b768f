// The part of the double that maps memory at addresses that were reserved. It is of no context: what has access, all
// contexts have.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/cuda_double.h"

namespace fairlead::gpu::testing {
namespace {

std::byte* pointer_to(CuAddress at) { return reinterpret_cast<std::byte*>(at); }  // NOLINT(performance-no-int-to-ptr)

}  // namespace

struct CudaDouble::MapCalls {
  static CudaDouble& self() { return CudaDouble::self(); }

  static CuResult granularity(std::size_t* bytes, const CuMemoryKind*, int) {
    *bytes = kBlock;
    return self().enter("memory_granularity", false);
  }
  /// As the system does: where it is wished for, or anywhere.
  static CuResult reserve(CuAddress* base, std::size_t bytes, std::size_t, CuAddress wish, unsigned long long) {
    const CuResult result = self().enter("address_reserve", false);
    if (result != CuResult::kSuccess) return result;
    if (bytes == 0 || bytes % kBlock != 0) return CuResult::kInvalidValue;
    constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* got = MAP_FAILED;
    // Elsewhere the driver takes the next such place, and fewer it gives out of what it has.
    constexpr std::size_t kWishable = std::size_t{32} << 20;
    if (wish != 0 && wish % kWishable == 0 && bytes >= kWishable) {
      got = ::mmap(pointer_to(wish), bytes, PROT_NONE, kNothing | MAP_FIXED_NOREPLACE, -1, 0);
    }
    if (got == MAP_FAILED) got = ::mmap(nullptr, bytes, PROT_NONE, kNothing, -1, 0);
    if (got == MAP_FAILED) return CuResult::kOutOfMemory;
    const std::lock_guard lock(self().mutex_);
    *base = reinterpret_cast<CuAddress>(got);
    self().reserved_[*base] = bytes;
    return result;
  }
  static CuResult free(CuAddress base, std::size_t bytes) {
    const CuResult result = self().enter("address_free", false);
    const std::lock_guard lock(self().mutex_);
    const auto at = self().reserved_.find(base);
    if (at == self().reserved_.end() || at->second != bytes || self().allocations_.contains(base)) {
      self().violations_.push_back("addresses are freed that are not reserved, or have memory");
      return CuResult::kInvalidValue;
    }
    ::munmap(pointer_to(base), bytes);
    self().reserved_.erase(at);
    return result;
  }
  static CuResult create(CuMemory* memory, std::size_t bytes, const CuMemoryKind* kind, unsigned long long) {
    const CuResult result = self().enter("memory_create", false);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    if (bytes == 0 || bytes % kBlock != 0 || kind->type != kMemoryPinned || kind->device.type != kLocationDevice) {
      return CuResult::kInvalidValue;
    }
    if (bytes > self().features_.memory - self().given_bytes_) return CuResult::kOutOfMemory;
    self().given_bytes_ += bytes;
    *memory = ++self().next_;
    self().memories_[*memory] = bytes;
    return result;
  }
  static CuResult release(CuMemory memory) {
    const CuResult result = self().enter("memory_release", false);
    const std::lock_guard lock(self().mutex_);
    const auto at = self().memories_.find(memory);
    if (at == self().memories_.end()) {
      self().violations_.push_back("memory is released twice");
      return CuResult::kInvalidValue;
    }
    self().given_bytes_ -= at->second;
    self().memories_.erase(at);
    return result;
  }
  /// It is never zeros.
  static CuResult map(CuAddress at, std::size_t bytes, std::size_t offset, CuMemory memory, unsigned long long) {
    const CuResult result = self().enter("memory_map", false);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto addresses = self().reserved_.find(at);
    const auto found = self().memories_.find(memory);
    if (addresses == self().reserved_.end() || addresses->second < bytes || found == self().memories_.end() ||
        found->second != bytes || offset != 0 || self().allocations_.contains(at)) {
      return CuResult::kInvalidValue;
    }
    const Mapping& made = self().map_at(pointer_to(at), bytes, 0, false);
    std::memset(made.shadow, 0xa5, bytes);
    self().allocations_[at] = {.bytes = bytes, .is_mapped = true};
    return result;
  }
  static CuResult unmap(CuAddress at, std::size_t bytes) {
    const CuResult result = self().enter("memory_unmap", false);
    const std::lock_guard lock(self().mutex_);
    const auto found = self().allocations_.find(at);
    if (found == self().allocations_.end() || !found->second.is_mapped || found->second.bytes != bytes) {
      self().violations_.push_back("memory is unmapped that is not mapped");
      return CuResult::kInvalidValue;
    }
    self().allocations_.erase(found);
    const auto mapping = std::ranges::find(self().mappings_, pointer_to(at), &Mapping::device);
    ::munmap(mapping->shadow, bytes);
    ::mmap(pointer_to(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    self().mappings_.erase(mapping);
    return result;
  }
  static CuResult access(CuAddress at, std::size_t bytes, const CuMemoryAccess* access, std::size_t count) {
    const CuResult result = self().enter("memory_access", false);
    if (result != CuResult::kSuccess) return result;
    const std::lock_guard lock(self().mutex_);
    const auto found = self().allocations_.find(at);
    if (found == self().allocations_.end() || !found->second.is_mapped || found->second.bytes != bytes || count != 1 ||
        access->flags != kAccessReadWrite) {
      return CuResult::kInvalidValue;
    }
    found->second.has_access = true;
    return result;
  }
};

void CudaDouble::add_map_calls(DriverApi& table) {
  table.memory_granularity = MapCalls::granularity;
  table.address_reserve = MapCalls::reserve;
  table.address_free = MapCalls::free;
  table.memory_create = MapCalls::create;
  table.memory_release = MapCalls::release;
  table.memory_map = MapCalls::map;
  table.memory_unmap = MapCalls::unmap;
  table.memory_access = MapCalls::access;
}

}  // namespace fairlead::gpu::testing
