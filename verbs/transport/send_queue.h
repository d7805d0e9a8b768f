// The sending half of a path: requests in, work requests out, ends of requests back.
//
// Two rings. Requests: accepted in order, put on the wire in order, reported in order. Work requests: what stands on
// the device's send queue; a request longer than the device takes is several, a credit message has no request.
//
//   accepted --(pump: slots, read depth, credits)--> on the send queue --(completion)--> done --(next_done)--> reported
//
// A send queue completes in order, so one signalled work request tells of all before it; every signal_every()-th and
// the last of each list is signalled, so that every one is covered. After a failure nothing more is put on the wire:
// what completed before the culprit is ok, the culprit has its own code, the rest is kAborted.
//
// Owner: the connection. Threads: one at a time. No allocation after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/path.h"
#include "verbs/transport/credits.h"
#include "verbs/transport/message_arena.h"
#include "verbs/transport/queue_limits.h"
#include "verbs/transport/work_chain.h"

namespace fairlead::verbs {

class SendQueue {
 public:
  /// One request, or as many as ended well in a row and have consecutive ids.
  struct Done {
    std::uint64_t first = 0;  // its id
    std::uint64_t count = 0;
    Code code = Code::kOk;
    std::uint64_t sent = 0, received = 0;  // bytes, of what ended well
  };

  /// `arena` and `chain` must outlive it.
  SendQueue(const QueueLimits& limits, const MessageArena& arena, WorkChain& chain);

  /// The path is connected: work requests may be posted to `qp`.
  struct Start {
    ibv_qp* qp = nullptr;
    std::uint64_t wr_id = 0;       // slot and generation
    std::uint32_t max_inline = 0;  // bytes; 0: the device takes none
    std::uint32_t max_reads = 0;   // READs that may be outstanding
    bool one_sided = true;         // both ends have one-sided operations
    Credits* credits = nullptr;    // must outlive it
  };
  void start(const Start& start) noexcept { start_ = start; }

  struct Posted {
    std::size_t taken = 0;  // requests
    int error = 0;          // as of pump()
  };
  /// Takes requests while there is room, and puts on the wire what may go, with one doorbell.
  [[nodiscard]] Posted post(std::span<const datapath::WorkRequest> requests) noexcept;
  /// Puts on the wire what waited and may go now. `greet`: send a credit message even if nothing is owed.
  /// Returns 0 or the errno of ibv_post_send: then the queue pair must be destroyed and abandon() called.
  [[nodiscard]] int pump(bool greet) noexcept;

  /// A completion for work request `sequence`. Stale sequences are ignored.
  void completed(std::uint32_t sequence, ibv_wc_status status) noexcept;
  /// What is to be reported next. Call until empty; it is safe to post() and pump() in between.
  std::optional<Done> next_done() noexcept;

  /// Nothing more is put on the wire; what is there comes back by completions.
  void stop() noexcept { stopped_ = true; }
  /// The queue pair is destroyed: no more completions will come. The oldest request ends with `code`.
  void abandon(Code code) noexcept;

  /// next_done() has something.
  [[nodiscard]] bool reportable() const noexcept;
  /// Requests wait to be put on the wire.
  [[nodiscard]] bool waiting() const noexcept { return started_ != accepted_ && !stopped_; }
  /// Requests that were accepted, and will be reported.
  [[nodiscard]] std::uint32_t unreported() const noexcept { return accepted_ - reported_; }
  /// Every accepted request was reported and the device owns nothing.
  [[nodiscard]] bool idle() const noexcept { return reported_ == accepted_ && wqe_tail_ == wqe_head_; }

 private:
  enum class WqeKind : std::uint8_t { kWrite, kRead, kMessage, kControl };

  struct Request {
    std::uint64_t id = 0;
    std::uint64_t remote_address = 0;  // of the next piece
    std::uint64_t length = 0;          // bytes
    std::uint64_t bytes = 0;           // those not yet on the wire
    std::uint64_t segment_offset = 0;  // in the next segment
    std::uint32_t remote_key = 0;
    std::optional<std::uint32_t> notify;
    std::uint32_t slot = 0;    // message: its copy
    std::uint32_t end = 0;     // sequence after its last work request, once it is wholly on the wire
    std::uint8_t segment = 0;  // next one
    std::uint8_t segments = 0;
    datapath::OpKind kind = datapath::OpKind::kWrite;
    Code code = Code::kOk;  // set: refused, or the culprit
  };

  // Numbers wrap, so the rings' sizes are powers of two.
  [[nodiscard]] std::size_t place_of(std::uint32_t number) const noexcept { return number & request_mask_; }
  [[nodiscard]] Request& request(std::uint32_t number) noexcept { return requests_[place_of(number)]; }
  [[nodiscard]] const Request& request(std::uint32_t number) const noexcept { return requests_[place_of(number)]; }
  [[nodiscard]] datapath::LocalSegment* segments_of(std::uint32_t number) noexcept {
    return &segments_[place_of(number) * limits_.max_segments];
  }
  [[nodiscard]] Code refusal(const datapath::WorkRequest& wanted, std::uint64_t bytes) const noexcept;
  /// Those that wait for others, or are to be cut, or copied.
  void take(const datapath::WorkRequest& wanted) noexcept;
  void copy_message(Request& request, const datapath::WorkRequest& wanted) noexcept;

  // Building the chain. put() and append_* return false when something is missing: slots, read depth, credits.
  std::size_t put_small(std::span<const datapath::WorkRequest> requests) noexcept;
  bool put(const datapath::WorkRequest& wanted) noexcept;
  void accept_whole(const datapath::WorkRequest& wanted, std::uint64_t bytes) noexcept;
  bool append(std::uint32_t number) noexcept;
  bool append_message(Request& request) noexcept;
  bool append_one_sided(Request& request, std::uint32_t number) noexcept;
  void append_control(bool greet) noexcept;
  int ring(bool greet) noexcept;
  [[nodiscard]] bool may_go_inline(std::uint64_t bytes) const noexcept {
    return bytes != 0 && bytes <= std::min(start_.max_inline, WorkChain::kMostInline);
  }
  void append_one_sided_wqe(datapath::OpKind kind, std::uint64_t remote_address, std::uint32_t remote_key,
                            const std::optional<std::uint32_t>& notify) noexcept;
  ibv_send_wr& append_wqe(WqeKind kind) noexcept;
  [[nodiscard]] bool room() const noexcept { return data_wqes_ < limits_.send_depth; }

  void retire_until(std::uint32_t sequence) noexcept;
  [[nodiscard]] Code code_of_ended(const Request& request, bool whole) const noexcept;
  void blame(std::uint32_t sequence, Code code) noexcept;

  const QueueLimits limits_;
  const MessageArena& arena_;
  WorkChain& chain_;
  Start start_;

  std::vector<Request> requests_;
  const std::uint32_t request_mask_;
  std::vector<datapath::LocalSegment> segments_;
  // Requests [reported_, started_) are wholly on the wire (or refused), [started_, accepted_) wait. They count up.
  std::uint32_t reported_ = 0, started_ = 0, accepted_ = 0;

  std::vector<WqeKind> wqes_;  // by sequence, size a power of two
  std::uint32_t wqe_tail_ = 0, wqe_head_ = 0;
  std::uint32_t data_wqes_ = 0, control_wqes_ = 0, reads_ = 0;  // between tail and head
  std::uint32_t unsignalled_ = 0;                               // since the last signalled one
  std::uint32_t next_slot_ = 0, next_control_ = 0;

  bool stopped_ = false;
  bool failed_ = false;
  std::uint32_t failed_at_ = 0;  // work requests from here on were not executed, as far as we know
};

}  // namespace fairlead::verbs
