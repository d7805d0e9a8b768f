// The completion queues of an endpoint, which can never overflow.
//
// Every queue pair reserves a completion entry for each of its send and receive slots before it is created; a queue
// whose entries are all reserved is joined by another one (resizing is not in the baseline of every device).
// A reservation given back counts only once its queue was seen empty: a device may leave completions of a destroyed
// queue pair behind. Owner: the endpoint. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>

#include "fairlead/config.h"
#include "fairlead/status.h"
#include "verbs/provider/objects.h"

namespace fairlead::verbs {

class CompletionQueues {
 public:
  struct Queue {
    CompletionQueue cq;
    std::uint32_t capacity = 0;
    std::uint32_t reserved = 0;
    std::uint32_t leaving = 0;  // part of `reserved` that is free once the queue was seen empty
  };

  CompletionQueues(const VerbsApi& api, ibv_context* context, ibv_comp_channel* channel, std::uint32_t max_cqe,
                   const VerbsConfig& config)
      : api_(api), context_(context), channel_(channel), max_cqe_(max_cqe), config_(config) {}

  /// A queue with room for `entries`, and its index for release(). Errors: kResourceExhausted, with the limit.
  Result<std::size_t> reserve(std::uint32_t entries);
  void release(std::size_t index, std::uint32_t entries) noexcept { queues_[index].leaving += entries; }
  /// The poller saw the queue empty.
  static void seen_empty(Queue& queue) noexcept {
    queue.reserved -= queue.leaving;
    queue.leaving = 0;
  }

  [[nodiscard]] std::deque<Queue>& all() noexcept { return queues_; }
  [[nodiscard]] ibv_cq* cq(std::size_t index) const noexcept { return queues_[index].cq.get(); }

 private:
  void moderate(ibv_cq* cq);

  const VerbsApi& api_;
  ibv_context* context_;
  ibv_comp_channel* channel_;
  std::uint32_t max_cqe_;
  VerbsConfig config_;
  std::deque<Queue> queues_;  // references stay valid while a poll opens a path
};

}  // namespace fairlead::verbs
