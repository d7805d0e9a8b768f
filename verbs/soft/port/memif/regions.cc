#include "verbs/soft/port/memif/regions.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace fairlead::soft::memif {
namespace {

// More than the largest number of the largest buffers that two rings can hold; what offsets of 32 bits reach.
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;

}  // namespace

Status Regions::adopt(const UniqueFd& descriptor, std::uint64_t bytes) {
  if (all_.size() == kMost) return {Code::kInvalidArgument, fmt::format("it has more than {} regions", kMost)};
  const auto there = size_of_shared_memory(descriptor.get(), F_SEAL_SHRINK);  // all that DPDK seals
  if (!there) return there.error();
  if (bytes == 0 || bytes > *there || bytes > kMostBytes) {
    return {Code::kInvalidArgument, fmt::format("its region is to have {} bytes, of memory that has {}; at most {}",
                                                bytes, *there, kMostBytes)};
  }
  auto mapped = SharedMapping::map(descriptor.get(), bytes);
  if (!mapped) return mapped.error();
  add(std::move(*mapped));
  return Status();
}

}  // namespace fairlead::soft::memif
