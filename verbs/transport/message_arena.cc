#include "verbs/transport/message_arena.h"

#include <cstdlib>

namespace fairlead::verbs {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

void MessageArena::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

Result<MessageArena> MessageArena::create(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                          const QueueLimits& limits, const RegionLimits& regions) {
  const std::size_t buffers = std::size_t{limits.receive_slots()} + limits.send_depth;
  const std::size_t wanted = buffers * limits.message_bytes + kControlDepth * kControlSlotBytes;
  const std::size_t bytes = (wanted + kPage - 1) / kPage * kPage;

  MessageArena arena;
  arena.limits_ = limits;
  arena.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
  if (!arena.memory_) {
    return Status(Code::kResourceExhausted,
                  fmt::format("no memory for {} message buffers of {} bytes; lower send_depth, receive_depth or "
                              "message_bytes",
                              buffers, limits.message_bytes));
  }
  auto region = register_memory(api, pd, device, {arena.memory_.get(), bytes}, IBV_ACCESS_LOCAL_WRITE, regions);
  if (!region) return region.error();
  arena.region_ = MemoryRegion(api, *region);
  return arena;
}

}  // namespace fairlead::verbs
