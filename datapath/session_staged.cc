// Staged mode: one-sided operations over a path that has none.
//
// A write crosses as messages {region, offset, bytes}; the target's driver copies and acknowledges. A read crosses as a
// request and is answered by messages. Operations are numbered per path; acknowledgements of writes are cumulative,
// but for a refused one, which is acknowledged by itself with its code. The path's message credits bound what is under
// way towards a receiver, kStagedWindow and kStagedReads what a sender has unacknowledged.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "datapath/engine_impl.h"
#include "datapath/session.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kStagedWindow = 256;
constexpr std::size_t kStagedReads = 16;
constexpr std::uint64_t kStagedReadBytes = 65536;

}  // namespace

bool SessionImpl::build_staged(TransferImpl& t, std::size_t& count) {
  const bool read = t.list->kind == OpKind::kRead;
  std::size_t unposted_reads = 0, unposted = 0;  // earlier ones of this batch
  for (std::size_t i = 0; i < count; ++i) {
    if (built_[i].use != MessageUse::kStaged) continue;
    ++unposted;
    unposted_reads += built_[i].transfer->list->kind == OpKind::kRead ? 1 : 0;
  }
  if (staged_.size() + unposted >= kStagedWindow) return false;
  if (read && staged_reads_ + unposted_reads >= kStagedReads) return false;
  const std::uint64_t limit = read ? kStagedReadBytes : slot_->can->max_message - kPathHeaderBytes;
  Built& built = built_[count];
  built = {&t, kMessageId, 0, MessageUse::kStaged, next_staged_, t.posted_bytes, t.next_op, t.next_offset, false};

  LocalSegment* segments = segments_ + segments_used_;
  ++segments_used_;  // the header's
  WorkRequest data;
  take_segments(t, limit, std::min<std::size_t>(kBatchSegments - segments_used_, 16), data);
  // The cursor stands behind what was taken; the first byte's op is where it was.
  std::size_t op_index = built.cursor_op;
  std::uint64_t op_offset = built.cursor_offset;
  while (t.list->ops[op_index].length == op_offset) {
    ++op_index;
    op_offset = 0;
  }
  const Op& op = t.list->ops[op_index];
  built.bytes = t.posted_bytes - built.at;
  built.leaves_queue = t.posted_bytes == t.data_bytes();
  PathMessage message;
  message.type = read ? MessageType::kStagedReadRequest : MessageType::kStagedWrite;
  message.sequence = next_staged_++;
  message.value = op.remote->id;
  message.offset = op.offset + op_offset;
  message.length = static_cast<std::uint32_t>(built.bytes);
  encode(message, headers_[count]);
  segments[0] = {headers_[count], kPathHeaderBytes, 0};
  const std::size_t used = read ? 1 : 1 + data.local.size();
  if (read) segments_used_ -= data.local.size();
  requests_[count] = {kMessageId, OpKind::kMessage, {segments, used}, 0, 0};
  if (built.leaves_queue) data_queue_.pop_front();
  ++count;
  return true;
}

// ---- target
// ----------------------------------------------------------------------------------------------------------

void SessionImpl::handle_staged_write(const PathMessage& message) {
  if (message.sequence != staged_handled_ + 1) {
    return fail({Code::kDataLoss, fmt::format("{} sent staged operation {} where {} was due", who(), message.sequence,
                                              staged_handled_ + 1)});
  }
  staged_handled_ = message.sequence;
  const Code code = engine_->regions().with_bytes(message.value, message.offset, message.data.size(),
                                                  Access::kRemoteWrite, [&](std::span<std::byte> target) {
                                                    if (!target.empty())
                                                      std::memcpy(target.data(), message.data.data(), target.size());
                                                  });
  if (code != Code::kOk) staged_refused_.push_back({message.sequence, code});
  pump_staged();
}

void SessionImpl::handle_staged_read(const PathMessage& message) {
  if (message.sequence != staged_handled_ + 1 || staged_replies_.size() >= kStagedReads ||
      message.length > kStagedReadBytes) {
    return fail({Code::kDataLoss, fmt::format("{} sent staged read {} of {} bytes out of turn", who(), message.sequence,
                                              message.length)});
  }
  staged_handled_ = message.sequence;
  staged_replies_.push_back({message.sequence, message.value, message.offset, message.length, 0, Code::kOk});
  pump_staged();
}

/// Sends what is owed to the peer: refusals, data of reads, the cumulative acknowledgement.
void SessionImpl::pump_staged() {
  if (slot_ == nullptr || slot_->closed) return;
  PathMessage message;
  const MessageInFlight control{MessageUse::kControl, nullptr, 0, 0};
  while (!staged_refused_.empty()) {
    message.type = MessageType::kStagedAck;
    message.sequence = staged_refused_.front().first;
    message.code = staged_refused_.front().second;
    if (!send_path_message(message, control)) return;
    staged_ack_sent_ = std::max(staged_ack_sent_, message.sequence);
    staged_refused_.pop_front();
  }
  message = {};
  if (staged_ack_sent_ < staged_handled_) {
    message.type = MessageType::kStagedAck;
    message.sequence = staged_handled_;
    if (!send_path_message(message, control)) return;
    staged_ack_sent_ = staged_handled_;
  }
  const std::size_t room = slot_->can->max_message - kPathHeaderBytes;
  staged_buffer_.resize(room);
  while (!staged_replies_.empty()) {
    StagedReply& reply = staged_replies_.front();
    const std::size_t size = std::min<std::size_t>(room, reply.length - reply.sent);
    message.type = MessageType::kStagedReadData;
    message.sequence = reply.sequence;
    message.offset = reply.sent;
    message.code = engine_->regions().with_bytes(reply.region, reply.offset + reply.sent, size, Access::kRemoteRead,
                                                 [&](std::span<std::byte> source) {
                                                   if (!source.empty())
                                                     std::memcpy(staged_buffer_.data(), source.data(), source.size());
                                                 });
    message.data = std::span<const std::byte>(staged_buffer_.data(), message.code == Code::kOk ? size : 0);
    if (!send_path_message(message, control)) return;
    reply.sent += static_cast<std::uint32_t>(size);
    if (message.code != Code::kOk || reply.sent == reply.length) staged_replies_.pop_front();
  }
}

// ---- initiator
// -------------------------------------------------------------------------------------------------------

void SessionImpl::handle_staged_ack(const PathMessage& message) {
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    StagedInFlight& entry = staged_[i];
    if (entry.sequence > message.sequence) break;
    if (entry.is_read || entry.done) continue;
    // A refusal speaks of its own operation; what came before it is done.
    if (entry.sequence == message.sequence) entry.code = message.code;
    entry.done = true;
  }
  retire_staged();
}

void SessionImpl::handle_staged_data(const PathMessage& message) {
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    StagedInFlight& entry = staged_[i];
    if (entry.sequence != message.sequence) continue;
    if (!entry.is_read || entry.done || message.offset != entry.received ||
        message.data.size() > entry.bytes - entry.received) {
      break;
    }
    if (message.code != Code::kOk) {
      entry.code = message.code;
      entry.done = true;
    } else {
      copy_read_data(entry, message.data);
      entry.done = entry.received == entry.bytes;
    }
    return retire_staged();
  }
  fail({Code::kDataLoss, fmt::format("{} answered staged read {} with {} bytes at {} that were not asked for", who(),
                                     message.sequence, message.data.size(), message.offset)});
}

void SessionImpl::copy_read_data(StagedInFlight& entry, std::span<const std::byte> bytes) {
  std::uint64_t skip = entry.at + entry.received;
  entry.received += bytes.size();
  for (const Op& op : entry.transfer->list->ops) {
    if (bytes.empty()) return;
    if (skip >= op.length) {
      skip -= op.length;
      continue;
    }
    const std::size_t size = std::min<std::size_t>(bytes.size(), op.length - skip);
    std::memcpy(op.data + skip, bytes.data(), size);
    bytes = bytes.subspan(size);
    skip = 0;
  }
}

void SessionImpl::retire_staged() {
  while (!staged_.empty() && staged_.front().done) {
    const StagedInFlight entry = staged_.pop_front();
    staged_reads_ -= entry.is_read ? 1 : 0;
    if (entry.code == Code::kOk) stats_.staged_bytes.add(entry.bytes);
    data_completed({entry.transfer, entry.bytes}, entry.code);
  }
}

/// The path is gone, and its numbering with it.
void SessionImpl::reset_staged() {
  while (!staged_.empty()) {
    const StagedInFlight entry = staged_.pop_front();
    data_completed({entry.transfer, entry.bytes}, entry.done ? entry.code : Code::kAborted);
  }
  staged_reads_ = 0;
  next_staged_ = 1;
  staged_handled_ = staged_ack_sent_ = 0;
  staged_refused_.clear();
  staged_replies_.clear();
}

}  // namespace fairlead::datapath
