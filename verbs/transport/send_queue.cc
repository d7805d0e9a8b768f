#include "verbs/transport/send_queue.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>

#include "transport/message_bytes.h"
#include "verbs/transport/completion_code.h"
#include "verbs/transport/message_header.h"

namespace fairlead::verbs {
namespace {

// Sequences wrap; two that are compared are never 2^31 apart.
bool at_or_after(std::uint32_t a, std::uint32_t b) noexcept { return static_cast<std::int32_t>(a - b) >= 0; }

}  // namespace

SendQueue::SendQueue(const QueueLimits& limits, const MessageArena& arena, WorkChain& chain)
    : limits_(limits),
      arena_(arena),
      chain_(chain),
      requests_(std::bit_ceil(limits.send_depth)),
      request_mask_(std::bit_ceil(limits.send_depth) - 1),
      segments_(requests_.size() * limits.max_segments),
      wqes_(std::bit_ceil(limits.send_slots())) {}

SendQueue::Posted SendQueue::post(std::span<const datapath::WorkRequest> requests) noexcept {
  chain_.clear();
  const std::uint32_t free = limits_.send_depth - (accepted_ - reported_);
  const std::size_t count = std::min<std::size_t>(free, requests.size());
  for (std::size_t i = put_small(requests.first(count)); i < count; ++i) {
    if (!put(requests[i])) take(requests[i]);
  }
  return {count, ring(false)};
}

Code SendQueue::refusal(const datapath::WorkRequest& wanted, std::uint64_t bytes) const noexcept {
  if (wanted.kind == datapath::OpKind::kMessage) {
    return bytes > limits_.message_bytes - kMessageHeaderBytes ? Code::kInvalidArgument : Code::kOk;
  }
  if (!start_.one_sided) return Code::kUnimplemented;
  if (wanted.kind == datapath::OpKind::kRead && start_.max_reads == 0) return Code::kUnimplemented;
  return wanted.local.size() > limits_.max_segments ? Code::kInvalidArgument : Code::kOk;
}

void SendQueue::take(const datapath::WorkRequest& wanted) noexcept {
  Request& r = request(accepted_);
  r = {};
  r.id = wanted.id;
  r.kind = wanted.kind;
  r.remote_address = wanted.remote_address;
  r.remote_key = static_cast<std::uint32_t>(wanted.remote_key);
  r.notify = wanted.notify;
  for (const datapath::LocalSegment& segment : wanted.local) r.bytes += segment.length;
  r.length = r.bytes;
  r.code = refusal(wanted, r.bytes);
  if (r.code == Code::kOk && wanted.kind == datapath::OpKind::kMessage) {
    copy_message(r, wanted);
  } else if (r.code == Code::kOk) {
    datapath::LocalSegment* out = segments_of(accepted_);
    // Empty segments may lack a key: drop them.
    for (const datapath::LocalSegment& segment : wanted.local) {
      if (segment.length != 0) out[r.segments++] = segment;
    }
  }
  ++accepted_;
}

// A slot is free when its request was reported, and there are as many slots as requests.
void SendQueue::copy_message(Request& r, const datapath::WorkRequest& wanted) noexcept {
  r.slot = next_slot_;
  if (++next_slot_ == limits_.send_depth) next_slot_ = 0;
  datapath::copy_message(arena_.send_slot(r.slot) + kMessageHeaderBytes, wanted.local);
}

int SendQueue::pump(bool greet) noexcept {
  chain_.clear();
  return ring(greet);
}

int SendQueue::ring(bool greet) noexcept {
  if (stopped_ || start_.qp == nullptr) return 0;
  while (started_ != accepted_ && append(started_)) ++started_;
  append_control(greet);
  if (chain_.empty()) return 0;
  chain_.keep_inline_what_is_there();
  chain_.last().send_flags |= IBV_SEND_SIGNALED;
  unsignalled_ = 0;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(start_.qp, chain_.first(), &bad);
}

/// Those in front that may go at once and are writes of one short segment, which come by the million: as put() does it,
/// in one go. How many there were.
std::size_t SendQueue::put_small(std::span<const datapath::WorkRequest> requests) noexcept {
  if (started_ != accepted_ || stopped_ || start_.qp == nullptr || !start_.one_sided) return 0;
  const std::uint64_t longest = std::min(start_.max_inline, WorkChain::kMostInline);
  const std::size_t most = std::min<std::size_t>(requests.size(), limits_.send_depth - data_wqes_);
  const std::uint32_t signal_every = limits_.signal_every();
  std::size_t count = 0;
  for (; count < most; ++count) {
    const datapath::WorkRequest& wanted = requests[count];
    if (wanted.kind != datapath::OpKind::kWrite || wanted.local.size() != 1 || wanted.notify) break;
    const datapath::LocalSegment& segment = wanted.local.front();
    if (segment.length == 0 || segment.length > longest) break;
    chain_.append_small_write(start_.wr_id | wqe_head_, segment.data, static_cast<std::uint32_t>(segment.length),
                              static_cast<std::uint32_t>(segment.key), wanted.remote_address,
                              static_cast<std::uint32_t>(wanted.remote_key));
    if (++unsignalled_ >= signal_every) {
      chain_.last().send_flags |= IBV_SEND_SIGNALED;
      unsignalled_ = 0;
    }
    wqes_[wqe_head_++ & (wqes_.size() - 1)] = WqeKind::kWrite;
    accept_whole(wanted, segment.length);
  }
  data_wqes_ += static_cast<std::uint32_t>(count);
  return count;
}

/// One work request that may go at once: it is not kept here first.
bool SendQueue::put(const datapath::WorkRequest& wanted) noexcept {
  const bool read = wanted.kind == datapath::OpKind::kRead;
  if (wanted.kind == datapath::OpKind::kMessage || started_ != accepted_ || stopped_ || start_.qp == nullptr)
    return false;
  if (!room() || (read && reads_ == start_.max_reads)) return false;
  std::uint64_t bytes = 0;
  for (const datapath::LocalSegment& segment : wanted.local) bytes += segment.length;
  if (bytes > limits_.max_wr_bytes || refusal(wanted, bytes) != Code::kOk) return false;
  if (wanted.notify && !start_.credits->take_message()) return false;
  append_one_sided_wqe(wanted.kind, wanted.remote_address, static_cast<std::uint32_t>(wanted.remote_key),
                       wanted.notify);
  for (const datapath::LocalSegment& segment : wanted.local) {
    if (segment.length == 0) continue;
    chain_.add_segment(segment.data, static_cast<std::uint32_t>(segment.length),
                       static_cast<std::uint32_t>(segment.key));
  }
  if (!read && may_go_inline(bytes)) chain_.set_inline();
  accept_whole(wanted, bytes);
  return true;
}

/// Its work requests are all on the chain.
void SendQueue::accept_whole(const datapath::WorkRequest& wanted, std::uint64_t bytes) noexcept {
  Request& r = request(accepted_);
  r.id = wanted.id;
  r.length = bytes;
  r.end = wqe_head_;
  r.kind = wanted.kind;
  r.code = Code::kOk;
  started_ = ++accepted_;
}

bool SendQueue::append(std::uint32_t number) noexcept {
  Request& r = request(number);
  bool whole = true;
  if (r.code == Code::kOk) {
    whole = r.kind == datapath::OpKind::kMessage ? append_message(r) : append_one_sided(r, number);
  }
  r.end = wqe_head_;  // a refused request ends with the one before it, in its turn
  return whole;
}

bool SendQueue::append_message(Request& r) noexcept {
  if (!room() || !start_.credits->take_message()) return false;
  std::byte* slot = arena_.send_slot(r.slot);
  write_header(slot, {MessageType::kMessage, start_.credits->take_owed()});
  const auto bytes = static_cast<std::uint32_t>(kMessageHeaderBytes + r.bytes);
  ibv_send_wr& wr = append_wqe(WqeKind::kMessage);
  wr.opcode = IBV_WR_SEND;
  if (bytes <= start_.max_inline) wr.send_flags |= IBV_SEND_INLINE;
  chain_.add_segment(slot, bytes, arena_.lkey());
  return true;
}

bool SendQueue::append_one_sided(Request& r, std::uint32_t number) noexcept {
  const bool read = r.kind == datapath::OpKind::kRead;
  const datapath::LocalSegment* segments = segments_of(number);
  do {
    if (!room() || (read && reads_ == start_.max_reads)) return false;
    const bool notifies = r.notify && r.bytes <= limits_.max_wr_bytes;  // the last piece does
    if (notifies && !start_.credits->take_message()) return false;
    append_one_sided_wqe(r.kind, r.remote_address, r.remote_key, notifies ? r.notify : std::nullopt);
    std::uint64_t piece = 0;
    while (piece < limits_.max_wr_bytes && r.segment < r.segments) {
      const datapath::LocalSegment& segment = segments[r.segment];
      const std::uint64_t length = std::min(segment.length - r.segment_offset, limits_.max_wr_bytes - piece);
      chain_.add_segment(segment.data + r.segment_offset, static_cast<std::uint32_t>(length),
                         static_cast<std::uint32_t>(segment.key));
      piece += length;
      r.segment_offset += length;
      if (r.segment_offset == segment.length) {
        ++r.segment;
        r.segment_offset = 0;
      }
    }
    if (!read && may_go_inline(piece)) chain_.set_inline();
    r.remote_address += piece;
    r.bytes -= piece;
  } while (r.bytes != 0);
  return true;
}

void SendQueue::append_one_sided_wqe(datapath::OpKind kind, std::uint64_t remote_address, std::uint32_t remote_key,
                                     const std::optional<std::uint32_t>& notify) noexcept {
  const bool read = kind == datapath::OpKind::kRead;
  ibv_send_wr& wr = append_wqe(read ? WqeKind::kRead : WqeKind::kWrite);
  wr.opcode = read ? IBV_WR_RDMA_READ : notify ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (notify) wr.imm_data = htonl(*notify);
  wr.wr.rdma.remote_addr = remote_address;
  wr.wr.rdma.rkey = remote_key;
}

void SendQueue::append_control(bool greet) noexcept {
  if (!greet && !start_.credits->worth_returning()) return;
  if (control_wqes_ == kControlDepth || !start_.credits->take_control()) return;
  std::byte* slot = arena_.control_slot(next_control_++ % kControlDepth);
  write_header(slot, {MessageType::kCredits, start_.credits->take_owed()});
  ibv_send_wr& wr = append_wqe(WqeKind::kControl);
  wr.opcode = IBV_WR_SEND;
  if (kMessageHeaderBytes <= start_.max_inline) wr.send_flags |= IBV_SEND_INLINE;
  chain_.add_segment(slot, kMessageHeaderBytes, arena_.lkey());
}

ibv_send_wr& SendQueue::append_wqe(WqeKind kind) noexcept {
  ibv_send_wr& wr = chain_.append();
  wr.wr_id = start_.wr_id | wqe_head_;
  if (++unsignalled_ >= limits_.signal_every()) {
    wr.send_flags |= IBV_SEND_SIGNALED;
    unsignalled_ = 0;
  }
  wqes_[wqe_head_++ & (wqes_.size() - 1)] = kind;
  if (kind == WqeKind::kControl) {
    ++control_wqes_;
  } else {
    ++data_wqes_;
    if (kind == WqeKind::kRead) ++reads_;
  }
  return wr;
}

void SendQueue::retire_until(std::uint32_t sequence) noexcept {
  for (; wqe_tail_ != sequence; ++wqe_tail_) {
    const WqeKind kind = wqes_[wqe_tail_ & (wqes_.size() - 1)];
    if (kind == WqeKind::kControl) {
      --control_wqes_;
    } else {
      --data_wqes_;
      if (kind == WqeKind::kRead) --reads_;
    }
  }
}

void SendQueue::completed(std::uint32_t sequence, ibv_wc_status status) noexcept {
  if (!at_or_after(sequence, wqe_tail_) || at_or_after(sequence, wqe_head_)) return;
  if (status != IBV_WC_SUCCESS && !failed_) {
    failed_ = true;
    stopped_ = true;
    // An error names its work request, and all before it were executed (IBTA 10.8.5). A flush only says that the
    // queue pair stopped: unsignalled ones before it may or may not have been, so they are not called done.
    failed_at_ = status == IBV_WC_WR_FLUSH_ERR ? wqe_tail_ : sequence;
    if (status != IBV_WC_WR_FLUSH_ERR) blame(sequence, code_of(status));
  }
  retire_until(sequence + 1);
}

// The request that work request `sequence` is a piece of, unless it was a credit message.
void SendQueue::blame(std::uint32_t sequence, Code code) noexcept {
  if (wqes_[sequence & (wqes_.size() - 1)] == WqeKind::kControl) return;
  for (std::uint32_t number = reported_; number != accepted_; ++number) {
    Request& r = request(number);
    if (number != started_ && !at_or_after(r.end, sequence + 1)) continue;
    r.code = code;
    return;
  }
}

bool SendQueue::reportable() const noexcept {
  if (reported_ == accepted_) return false;
  if (reported_ != started_) return at_or_after(wqe_tail_, request(reported_).end);
  // Not wholly on the wire: it ends only when nothing more goes there, and its pieces have come back.
  return stopped_ && wqe_tail_ == wqe_head_;
}

/// `whole`: all of it was put on the wire.
Code SendQueue::code_of_ended(const Request& r, bool whole) const noexcept {
  const bool executed = whole && (!failed_ || at_or_after(failed_at_, r.end));
  return r.code != Code::kOk || executed ? r.code : Code::kAborted;
}

std::optional<SendQueue::Done> SendQueue::next_done() noexcept {
  if (!reportable()) return std::nullopt;
  const bool whole = reported_ != started_;
  const Request* r = &request(reported_);
  Done done{.first = r->id, .code = code_of_ended(*r, whole)};
  if (!whole) ++started_;
  do {
    ++reported_;
    ++done.count;
    if (done.code != Code::kOk) return done;
    (r->kind == datapath::OpKind::kRead ? done.received : done.sent) += r->length;
    r = &request(reported_);
  } while (reported_ != started_ && at_or_after(wqe_tail_, r->end) && r->id == done.first + done.count &&
           code_of_ended(*r, true) == Code::kOk);
  return done;
}

void SendQueue::abandon(Code code) noexcept {
  stopped_ = true;
  if (!failed_) {
    failed_ = true;
    failed_at_ = wqe_tail_;
    if (code != Code::kOk && code != Code::kAborted && wqe_tail_ != wqe_head_) blame(wqe_tail_, code);
  }
  retire_until(wqe_head_);
}

}  // namespace fairlead::verbs
