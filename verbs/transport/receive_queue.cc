#include "verbs/transport/receive_queue.h"

#include <utility>

#include "verbs/transport/wr_id.h"

namespace fairlead::verbs {

ReceiveQueue::ReceiveQueue(const QueueLimits& limits, const MessageArena& arena, std::uint64_t wr_id)
    : arena_(arena), requests_(limits.receive_slots()), segments_(limits.receive_slots()) {
  for (std::uint32_t i = 0; i < limits.receive_slots(); ++i) {
    segments_[i] = {reinterpret_cast<std::uintptr_t>(arena.receive_buffer(i)), limits.message_bytes, arena.lkey()};
    requests_[i] = {};
    requests_[i].wr_id = wr_id | kReceiveBit | i;
    requests_[i].sg_list = &segments_[i];
    requests_[i].num_sge = 1;
  }
}

int ReceiveQueue::post_all(ibv_qp* qp) noexcept {
  for (std::uint32_t i = 0; i < requests_.size(); ++i) give_back(i, MessageType::kMessage);
  CreditReturn not_owed;  // the peer learns the number of buffers from the path description
  return repost(qp, not_owed);
}

std::optional<ReceiveQueue::Arrival> ReceiveQueue::arrived(std::uint32_t index, std::uint32_t bytes) noexcept {
  --outstanding_;
  if (index >= requests_.size() || bytes > segments_[index].length) return std::nullopt;
  const std::span<const std::byte> message(arena_.receive_buffer(index), bytes);
  const auto header = read_header(message);
  if (!header) return std::nullopt;
  return Arrival{*header, message.subspan(kMessageHeaderBytes)};
}

void ReceiveQueue::give_back(std::uint32_t index, MessageType type) noexcept {
  ibv_recv_wr* request = &requests_[index];
  request->next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = request;
  last_ = request;
  ++(type == MessageType::kMessage ? waiting_.messages : waiting_.controls);
}

int ReceiveQueue::repost(ibv_qp* qp, CreditReturn& freed) noexcept {
  if (first_ == nullptr) return 0;
  ibv_recv_wr* bad = nullptr;
  ibv_recv_wr* const list = std::exchange(first_, nullptr);
  const int error = ibv_post_recv(qp, list, &bad);
  if (error != 0) {  // the path ends; what was taken before the bad one is still to be flushed
    for (const ibv_recv_wr* taken = list; taken != bad && taken != nullptr; taken = taken->next) ++outstanding_;
    return error;
  }
  freed = std::exchange(waiting_, {});
  outstanding_ += freed.messages + freed.controls;
  return 0;
}

}  // namespace fairlead::verbs
