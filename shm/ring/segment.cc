#include "shm/ring/segment.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace fairlead::shm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBytes = (sizeof(Shared) + kPage - 1) / kPage * kPage;

}  // namespace

Result<Segment> Segment::make(UniqueFd& descriptor) {
  auto made = make_shared_memory("fairlead-shm", kBytes);
  if (!made) return made.error();
  descriptor = std::move(*made);
  auto memory = SharedMapping::map(descriptor.get(), kBytes);
  if (!memory) return memory.error();
  return Segment(std::move(*memory));
}

Result<Segment> Segment::adopt(const UniqueFd& descriptor) {
  const auto bytes = size_of_shared_memory(descriptor.get(), F_SEAL_SHRINK | F_SEAL_GROW);
  if (!bytes) return bytes.error();
  if (*bytes != kBytes) {
    return {Code::kInvalidArgument, fmt::format("the peer's memory has {} bytes instead of {}", *bytes, kBytes)};
  }
  auto memory = SharedMapping::map(descriptor.get(), kBytes);
  if (!memory) return memory.error();
  return Segment(std::move(*memory));
}

}  // namespace fairlead::shm
