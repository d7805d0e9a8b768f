// The receiving half of a path: buffers posted, messages taken out, buffers posted again.
//
// Owner: the connection. Threads: one at a time. No allocation after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "verbs/transport/message_arena.h"
#include "verbs/transport/message_header.h"
#include "verbs/transport/queue_limits.h"

namespace fairlead::verbs {

class ReceiveQueue {
 public:
  struct Arrival {
    MessageHeader header;
    std::span<const std::byte> payload;  // valid until give_back() and repost()
  };

  /// `arena` must outlive it.
  ReceiveQueue(const QueueLimits& limits, const MessageArena& arena, std::uint64_t wr_id);

  /// Posts every buffer, once, in INIT. Returns 0 or errno.
  [[nodiscard]] int post_all(ibv_qp* qp) noexcept;

  /// A receive completed with `bytes` bytes: what it holds, or nothing if it is no message of ours. The buffer belongs
  /// to the caller until give_back().
  [[nodiscard]] std::optional<Arrival> arrived(std::uint32_t index, std::uint32_t bytes) noexcept;
  /// A receive completed with the notification of a write: its buffer holds nothing. False: there is no such buffer.
  [[nodiscard]] bool notified(std::uint32_t index) noexcept {
    --outstanding_;
    return index < requests_.size();
  }
  /// The buffer may be posted again (by the next repost).
  void give_back(std::uint32_t index, MessageType type) noexcept;
  /// Posts what was given back, with one doorbell. Returns 0 or errno; `freed`: what the peer may be told.
  [[nodiscard]] int repost(ibv_qp* qp, CreditReturn& freed) noexcept;

  /// A receive came back unused. Receives complete in order, so no message comes after it.
  void flushed() noexcept { ended_ = true; }
  /// The queue pair is destroyed.
  void abandon() noexcept { ended_ = true; }
  /// After an error: every message that arrived was handed out.
  [[nodiscard]] bool ended() const noexcept { return ended_ || outstanding_ == 0; }

 private:
  const MessageArena& arena_;
  std::vector<ibv_recv_wr> requests_;  // one per buffer, made once; only `next` changes
  std::vector<ibv_sge> segments_;
  ibv_recv_wr* first_ = nullptr;  // the list for the next repost
  ibv_recv_wr* last_ = nullptr;
  CreditReturn waiting_;
  std::uint32_t outstanding_ = 0;  // buffers that the device holds
  bool ended_ = false;
};

}  // namespace fairlead::verbs
