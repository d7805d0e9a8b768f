// The registered memory of one path: receive buffers, copies of messages to send, and credit messages.
//
// One allocation, one memory region, local access only; peers never learn its key. Owner: the path's connection; it
// must outlive the queue pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/provider/objects.h"
#include "verbs/provider/registration.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

class MessageArena {
 public:
  /// Errors: kResourceExhausted, naming sizes and remedy.
  static Result<MessageArena> create(const VerbsApi& api, ibv_pd* pd, std::string_view device,
                                     const QueueLimits& limits, const RegionLimits& regions);

  [[nodiscard]] std::uint32_t lkey() const noexcept { return region_->lkey; }
  [[nodiscard]] std::byte* receive_buffer(std::uint32_t index) const noexcept {
    return memory_.get() + std::size_t{index} * limits_.message_bytes;
  }
  [[nodiscard]] std::byte* send_slot(std::uint32_t index) const noexcept {
    return receive_buffer(limits_.receive_slots() + index);
  }
  [[nodiscard]] std::byte* control_slot(std::uint32_t index) const noexcept {
    return send_slot(limits_.send_depth) + std::size_t{index} * kControlSlotBytes;
  }

 private:
  static constexpr std::size_t kControlSlotBytes =
      64;  // a cache line each: the device reads one while we write another
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };

  MessageArena() = default;

  QueueLimits limits_;
  std::unique_ptr<std::byte, Free> memory_;
  MemoryRegion region_;
};

}  // namespace fairlead::verbs
