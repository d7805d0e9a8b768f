// Staged mode in a session: what staging.h knows, posted to and taken from the path.
#include <fmt/format.h>

#include <algorithm>

#include "datapath/session/session.h"

namespace fairlead::datapath {

bool SessionImpl::build_staged(TransferImpl& t, std::size_t& count) {
  const bool read = t.list->kind == OpKind::kRead;
  std::size_t unposted_reads = 0, unposted = 0;  // earlier ones of this batch
  for (std::size_t i = 0; i < count; ++i) {
    if (built_[i].use != MessageUse::kStaged) continue;
    ++unposted;
    unposted_reads += built_[i].transfer->list->kind == OpKind::kRead ? 1 : 0;
  }
  if (!staged_.has_room(read, unposted, unposted_reads)) return false;
  const std::uint64_t limit = read ? staging::kReadBytes : slot_->can->max_message - kPathHeaderBytes;
  Built& built = built_[count];
  built = {&t,        kMessageId,    0,    MessageUse::kStaged, staged_.take_number(), t.posted_bytes,
           t.next_op, t.next_offset, false};

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
  message.sequence = built.sequence;
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

void SessionImpl::handle_staged(const PathMessage& message) {
  std::string why;
  bool legal = true;
  switch (message.type) {
    case MessageType::kStagedWrite:
      legal = staged_target_.on_write(message, host_->regions(), why);
      break;
    case MessageType::kStagedReadRequest:
      legal = staged_target_.on_read(message, why);
      break;
    case MessageType::kStagedReadData:
      legal = staged_.on_data(message, why);
      break;
    default:
      legal = staged_.on_ack(message, why);
  }
  if (!legal) return fail({Code::kDataLoss, fmt::format("{} {}", who(), why)});
  if (message.type == MessageType::kStagedWrite || message.type == MessageType::kStagedReadRequest) {
    return pump_staged();
  }
  staged_.retire([this](const staging::Initiator::Operation& operation) {
    if (operation.code == Code::kOk) stats_.staged_bytes.add(operation.bytes);
    data_completed({operation.transfer, operation.bytes}, operation.code);
  });
}

void SessionImpl::pump_staged() {
  if (slot_ == nullptr || slot_->closed) return;
  staged_target_.pump(host_->regions(), slot_->can->max_message, [this](const PathMessage& message) {
    return send_path_message(message, {MessageUse::kControl, nullptr, 0, 0});
  });
}

/// The path is gone, and its numbering with it.
void SessionImpl::reset_staged() {
  staged_.reset([this](const staging::Initiator::Operation& operation) {
    data_completed({operation.transfer, operation.bytes}, operation.code);
  });
  staged_target_.reset();
}

}  // namespace fairlead::datapath
