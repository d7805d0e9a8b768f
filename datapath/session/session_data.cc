// Data: what is posted to the path, in which order, and what its completions and messages mean.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "datapath/session/session.h"

namespace fairlead::datapath {
namespace {

/// The path went away under the operation: not the operation's fault, it is posted again.
bool is_innocent(Code code) { return code == Code::kAborted || code == Code::kUnavailable || code == Code::kPeerDied; }

/// What the byte at `offset` of a list belongs to. Requests of a transfer end in the order of posting, so the first
/// that fails begins where the completed bytes end.
const RemoteRegionImpl* region_at(const TransferImpl& t, std::uint64_t offset) {
  for (const Op& op : t.list->ops) {
    if (offset < op.length) return op.remote;
    offset -= op.length;
  }
  return nullptr;
}

}  // namespace

// ---- taking transfers
// ------------------------------------------------------------------------------------------------

void SessionImpl::accept_transfer(TransferImpl& t) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kDraining || phase_ == Phase::kClosed ||
      close_deadline_ != Clock::time_point::max()) {
    const bool lost = !close_status_.ok();
    return finish(t, lost ? close_status_.code() : Code::kUnavailable,
                  lost ? std::string(close_status_.message()) : fmt::format("the session with {} is closed", who()));
  }
  t.active = true;
  t.previous = last_;
  (last_ != nullptr ? last_->next : first_) = &t;
  last_ = &t;
  ++active_transfers_;
  if (t.deadline != Clock::time_point::max()) ++with_deadline_;
  if (t.data_bytes() != 0) data_queue_.push_back(&t);
  if (t.has_message) message_queue_.push_back(&t);
  if (t.data_bytes() == 0 && !t.has_message) return settle(t);
  pump();
}

// ---- posting
// ---------------------------------------------------------------------------------------------------------

void SessionImpl::pump() {
  if (slot_ == nullptr || !slot_->usable) return;
  if (staged_target_.owes()) pump_staged();
  while (slot_ != nullptr && slot_->usable) {
    // No more than the path takes: what it refuses was built in vain.
    const std::size_t depth = slot_->can->max_outstanding;
    const std::size_t room = slot_->outstanding < depth ? std::min(depth - slot_->outstanding, kBatch) : 0;
    std::size_t count = 0;
    segments_used_ = 0;
    while (count < room && (build_message(count) || build_data(count))) {
    }
    if (count == 0) return;
    const std::size_t accepted = slot_->path->post({requests_, count});
    commit(count, accepted);
    if (accepted < count || (message_queue_.empty() && data_queue_.empty())) return;
  }
}

bool SessionImpl::message_ready(const TransferImpl& t) const noexcept {
  if (t.list == nullptr || t.done_bytes == t.data_bytes()) return true;
  // Behind its writes on an ordered path the notification may follow at once; else it waits for their completion.
  return t.list->kind == OpKind::kWrite && t.posted_bytes == t.data_bytes() && !slot_->write_failed &&
         slot_->can->write_then_message_ordered;
}

bool SessionImpl::build_message(std::size_t& count) {
  if (hold_messages_ || message_queue_.empty() || segments_used_ + 2 > kBatchSegments) return false;
  TransferImpl& t = *message_queue_.front();
  if (t.failure != Code::kOk) {  // it ends without its message
    message_queue_.pop_front();
    return build_message(count);
  }
  if (t.is_send && t.message.size() > peer_max_message_) {
    t.failure = Code::kInvalidArgument;
    t.reason = fmt::format("a message of {} bytes; {} takes at most {} (its max_message_bytes)", t.message.size(),
                           who(), peer_max_message_);
    message_queue_.pop_front();
    settle(t);
    return build_message(count);
  }
  if (!message_ready(t) || !window_open()) return false;
  PathMessage message;
  message.sequence = next_sequence_;
  message.value = t.value;
  LocalSegment* segments = segments_ + segments_used_;
  std::size_t used = 1;
  bool last = true;
  Built& built = built_[count];
  built = {&t, kMessageId, 0, MessageUse::kSequenced, next_sequence_, t.message_posted, 0, 0, false};
  if (t.is_send) {
    const std::uint64_t room = slot_->can->max_message - kPathHeaderBytes;
    const std::uint64_t length = std::min<std::uint64_t>(room, t.message.size() - t.message_posted);
    message.type = MessageType::kFragment;
    message.offset = t.message_posted;
    message.total = t.message.size();
    if (length != 0) segments[used++] = {t.message.data() + t.message_posted, length, 0};
    t.message_posted += length;
    last = t.message_posted == t.message.size();
  } else {
    message.type = MessageType::kNotify;
  }
  encode(message, headers_[count]);
  segments[0] = {headers_[count], kPathHeaderBytes, 0};
  requests_[count] = {kMessageId, OpKind::kMessage, {segments, used}, 0, 0};
  segments_used_ += used;
  ++next_sequence_;
  t.message_all_posted = last;
  built.leaves_queue = last;
  if (last) message_queue_.pop_front();
  ++count;
  return true;
}

/// Gathers what follows the cursor into one request: up to `limit` bytes of adjacent remote memory.
bool SessionImpl::take_segments(TransferImpl& t, std::uint64_t limit, std::size_t max_segments, WorkRequest& request) {
  const std::vector<Op>& ops = t.list->ops;
  while (t.next_op < ops.size() && ops[t.next_op].length == t.next_offset) {  // empty pieces
    ++t.next_op;
    t.next_offset = 0;
  }
  const Op& first = ops[t.next_op];
  const RemoteRegionImpl::Key& key = first.remote->keys[slot_->peer_transport];
  const std::uint64_t remote_begin = first.offset + t.next_offset;
  LocalSegment* segments = segments_ + segments_used_;
  std::size_t used = 0;
  std::uint64_t bytes = 0;
  while (t.next_op < ops.size() && used < max_segments && bytes < limit) {
    const Op& op = ops[t.next_op];
    if (op.remote != first.remote || op.offset + t.next_offset != remote_begin + bytes) break;
    const std::uint64_t length = std::min(op.length - t.next_offset, limit - bytes);
    if (length != 0) segments[used++] = {op.data + t.next_offset, length, op.range->local_key(slot_->transport)};
    bytes += length;
    t.next_offset += length;
    if (t.next_offset == op.length) {
      ++t.next_op;
      t.next_offset = 0;
    }
  }
  request.local = {segments, used};
  request.remote_address = key.address + remote_begin;
  request.remote_key = key.key;
  segments_used_ += used;
  t.posted_bytes += bytes;
  return true;
}

/// Its last write may take the notification along: one request, and on the wire one packet, instead of two.
bool SessionImpl::may_carry_notification(const TransferImpl& t) noexcept {
  return slot_->can->write_notifies && t.has_message && t.list->kind == OpKind::kWrite &&
         t.posted_bytes == t.data_bytes() && t.value <= std::numeric_limits<std::uint32_t>::max() && !hold_messages_ &&
         !message_queue_.empty() && message_queue_.front() == &t && window_open();
}

/// The transfer whose data is next; those that cannot go on are ended. Null: none, or none in this batch.
TransferImpl* SessionImpl::next_with_data(std::size_t count) {
  while (!data_queue_.empty()) {
    TransferImpl& t = *data_queue_.front();
    if (t.failure != Code::kOk) {
      data_queue_.pop_front();
      continue;
    }
    const RemoteRegionImpl& remote = *t.list->ops[t.next_op].remote;
    const bool refused = remote.refused.load(std::memory_order_relaxed);
    if (!refused && (slot_->write_failed || remote.keys[slot_->peer_transport].key != 0)) return &t;
    // What the batch holds of it is posted first: a transfer that ends may be gone.
    if (std::any_of(built_, built_ + count, [&](const Built& built) { return built.transfer == &t; })) return nullptr;
    if (refused) {
      fail_transfer(t, Code::kProtectionError, &remote);
    } else {
      t.failure = Code::kUnimplemented;
      t.reason = fmt::format("region '{}' of {} cannot be reached over {}", remote.name, who(),
                             host_->transports()[slot_->transport].offer.name);
    }
    settle(t);
  }
  return nullptr;
}

bool SessionImpl::build_data(std::size_t& count) {
  TransferImpl* next = next_with_data(count);
  if (next == nullptr) return false;
  TransferImpl& t = *next;
  const std::size_t room = kBatchSegments - segments_used_;
  if (room < 2) return false;
  if (slot_->write_failed) return build_staged(t, count);
  Built& built = built_[count];
  const RequestId id = t.list->kind == OpKind::kWrite ? kWriteId : kReadId;
  built = {&t, id, 0, MessageUse::kControl, 0, t.posted_bytes, t.next_op, t.next_offset, false};
  WorkRequest& request = requests_[count];
  request.id = id;
  request.kind = t.list->kind;
  take_segments(t, host_->config().chunk_bytes, std::min<std::size_t>(slot_->can->max_segments, room), request);
  built.bytes = t.posted_bytes - built.at;
  built.leaves_queue = t.posted_bytes == t.data_bytes();
  if (built.leaves_queue) data_queue_.pop_front();
  request.notify.reset();
  if (may_carry_notification(t)) {
    request.id = built.id = kNotifyingWriteId;
    request.notify = static_cast<std::uint32_t>(t.value);
    built.use = MessageUse::kSequenced;
    built.sequence = next_sequence_++;
    t.message_all_posted = true;
    message_queue_.pop_front();
  }
  ++count;
  return true;
}

void SessionImpl::commit(std::size_t built, std::size_t accepted) {
  slot_->outstanding += accepted;
  for (std::size_t i = 0; i < accepted; ++i) {
    const Built& b = built_[i];
    TransferImpl& t = *b.transfer;
    if (b.use == MessageUse::kSequenced) {
      messages_.push_back({b.use, &t, t.message_offset_of(b.at), b.sequence});
      ++t.messages_outstanding;
      ++sequenced_in_flight_;
    }
    if (b.use == MessageUse::kStaged) {
      messages_.push_back({b.use, nullptr, 0, 0});
      const bool read = t.list->kind == OpKind::kRead;
      staged_.push({&t, b.bytes, b.sequence, b.at, read, 0, false, Code::kOk});
      ++t.outstanding;
    } else if (b.id != kMessageId) {
      (b.id == kReadId ? reads_ : writes_).push_back({&t, b.bytes});
      ++t.outstanding;
    }
  }
  for (std::size_t i = built; i > accepted; --i) {  // newest first, so that queues and cursors go back step by step
    const Built& b = built_[i - 1];
    TransferImpl& t = *b.transfer;
    if (b.use == MessageUse::kSequenced) {
      t.message_posted = t.message_offset_of(b.at);
      t.message_all_posted = false;
      next_sequence_ = b.sequence;
      if (b.leaves_queue) message_queue_.push_front(&t);
      if (b.id == kMessageId) continue;
    }
    if (b.use == MessageUse::kStaged) staged_.give_back(b.sequence);
    t.posted_bytes = b.at;
    t.next_op = b.cursor_op;
    t.next_offset = b.cursor_offset;
    if (b.leaves_queue) data_queue_.push_front(&t);
  }
}

bool SessionImpl::send_path_message(const PathMessage& message, MessageInFlight entry) {
  PathHeader header;
  encode(message, header);
  const LocalSegment segments[2] = {
      {header, kPathHeaderBytes, 0},
      {const_cast<std::byte*>(message.data.data()), message.data.size(), 0}};  // read by post() only
  const WorkRequest request{kMessageId, OpKind::kMessage, {segments, message.data.empty() ? 1u : 2u}, 0, 0};
  if (slot_ == nullptr || slot_->closed || slot_->path->post({&request, 1}) == 0) return false;
  ++slot_->outstanding;
  messages_.push_back(entry);
  return true;
}

// ---- completions
// -----------------------------------------------------------------------------------------------------

void SessionImpl::on_path_completion(Path& path, std::uint64_t id, Code code) {
  if (slot_ == nullptr || slot_->path.get() != &path) return;
  dirty_ = true;
  slot_->moved = true;
  --slot_->outstanding;
  if (id == kProbeId) {
    (code == Code::kOk ? slot_->write_proved : slot_->write_failed) = true;
  } else if (id == kMessageId) {
    if (!messages_.empty()) message_completed(messages_.pop_front(), code);
  } else if (id == kNotifyingWriteId) {
    if (writes_.empty() || messages_.empty()) return;
    data_completed(writes_.pop_front(), code);
    message_completed(messages_.pop_front(), code);
  } else if (Ring<DataInFlight>& queue = id == kWriteId ? writes_ : reads_; !queue.empty()) {
    data_completed(queue.pop_front(), code);
  }
}

void SessionImpl::data_completed(DataInFlight entry, Code code) {
  TransferImpl& t = *entry.transfer;
  --t.outstanding;
  if (code == Code::kOk) {
    t.done_bytes += entry.bytes;
  } else if (!is_innocent(code)) {
    fail_transfer(t, code, region_at(t, t.done_bytes));
    // Messages in flight behind the refused write come back; none may overtake them.
    if (slot_ != nullptr && !slot_->closed && sequenced_in_flight_ != 0) hold_messages_ = true;
  }
  settle(t);
}

void SessionImpl::fail_transfer(TransferImpl& t, Code code, const RemoteRegionImpl* refused) {
  if (t.failure != Code::kOk) return;
  t.failure = code;
  if (code == Code::kProtectionError && refused != nullptr) {
    refused->refused.store(true, std::memory_order_relaxed);
    t.reason = refusal_of(who(), *refused);
  } else if (code == Code::kDataLoss) {
    t.reason = "this end's memory went away under the transfer: it was unmapped, or its file was cut short";
  } else {
    t.reason = fmt::format("the path to {} failed the operation", who());
  }
}

void SessionImpl::message_completed(MessageInFlight entry, Code code) {
  if (entry.use != MessageUse::kSequenced) {
    if (code != Code::kOk) inbound_.forget_told();  // it may have been the word of our credits
    return;
  }
  TransferImpl& t = *entry.transfer;
  --t.messages_outstanding;
  --sequenced_in_flight_;
  if (code == Code::kOk) {
    last_acknowledged_ = entry.sequence;
    if (t.message_all_posted && t.messages_outstanding == 0 && !t.message_aborted) t.message_done = true;
  } else {
    t.message_aborted = true;
    undelivered_.push_back(entry);
  }
  // What came back on a path that lives is posted again once everything behind it came back too; whether the path
  // lives shows when this poll is over (advance()).
  if (!undelivered_.empty()) hold_messages_ = true;
  settle(t);
}

/// Numbers what was not delivered anew, from `next_sequence` on, and queues it in the order of posting.
void SessionImpl::requeue_undelivered(std::uint64_t next_sequence) {
  for (const MessageInFlight& entry : undelivered_) {
    TransferImpl& t = *entry.transfer;
    if (!t.message_aborted) continue;  // an earlier part of it has reset it
    t.message_posted = entry.offset;
    t.message_all_posted = t.message_aborted = false;
  }
  undelivered_.clear();
  hold_messages_ = false;
  next_sequence_ = next_sequence;
  message_queue_.clear();
  for (TransferImpl* t = first_; t != nullptr; t = t->next) {
    if (t->has_message && !t->message_all_posted && t->failure == Code::kOk) message_queue_.push_back(t);
  }
  for (TransferImpl* t = first_; t != nullptr;) {
    TransferImpl* next = t->next;
    if (t->failure != Code::kOk) settle(*t);
    t = next;
  }
}

void SessionImpl::settle(TransferImpl& t) {
  if (!t.active || t.outstanding != 0 || t.messages_outstanding != 0) return;
  const bool data_done = t.done_bytes == t.data_bytes();
  if (data_done && (!t.has_message || t.message_done)) return finish(t, Code::kOk, {});
  // An aborted part of it may have been delivered: only the fence tells (apply_peer_received).
  if (t.failure != Code::kOk && !t.message_aborted) finish(t, t.failure, std::move(t.reason));
}

void SessionImpl::finish(TransferImpl& t, Code code, std::string reason) {
  if (t.active) {
    t.active = false;
    (t.previous != nullptr ? t.previous->next : first_) = t.next;
    (t.next != nullptr ? t.next->previous : last_) = t.previous;
    --active_transfers_;
    if (t.deadline != Clock::time_point::max()) --with_deadline_;
    if (code != Code::kOk) {  // it may still be queued
      for (Ring<TransferImpl*>* queue : {&data_queue_, &message_queue_}) {
        for (std::size_t n = queue->size(); n != 0; --n) {
          TransferImpl* other = queue->pop_front();
          if (other != &t) queue->push_back(other);
        }
      }
    }
  }
  (code == Code::kOk ? stats_.transfers_completed : stats_.transfers_failed).add();
  if (t.list != nullptr) (t.list->kind == OpKind::kWrite ? stats_.bytes_written : stats_.bytes_read).add(t.done_bytes);
  if (t.is_send && code == Code::kOk) stats_.messages_sent.add();
  t.code = code;
  if (code != Code::kOk) t.reason = std::move(reason);
  const bool report = t.report;
  if (report) add_reference(t);
  t.finished.store(true, std::memory_order_release);
  if (report) host_->queues().push_completed(t);
  drop_reference(t);
}

void SessionImpl::finish_all(Code code, const std::string& reason) {
  data_queue_.clear();
  message_queue_.clear();
  undelivered_.clear();
  while (first_ != nullptr) {
    TransferImpl& t = *first_;
    const bool own = t.failure != Code::kOk;
    finish(t, own ? t.failure : code, std::string(own ? t.reason : reason));
  }
}

void SessionImpl::check_deadlines(Clock::time_point now) {
  const bool cancels = cancel_pending_.exchange(false);
  bool stuck = false;
  for (TransferImpl* t = first_; t != nullptr;) {
    TransferImpl* next = t->next;
    if (t->failure == Code::kOk && cancels && t->cancel_requested.load()) {
      t->failure = Code::kCancelled;
      t->reason = "cancelled";
    } else if (t->failure == Code::kOk && now >= t->deadline) {
      t->failure = Code::kDeadlineExceeded;
      t->reason = fmt::format("the deadline passed with {} of {} bytes placed", t->done_bytes, t->data_bytes());
    }
    if (t->failure != Code::kOk) {
      settle(*t);
      stuck = stuck || t->active;
    }
    t = next;
  }
  // Memory on a path that does not move is let go by fencing the path.
  if (!stuck) {
    release_deadline_ = Clock::time_point::max();
  } else if (release_deadline_ == Clock::time_point::max()) {
    release_deadline_ = now + host_->config().path_timeout;
  }
}

// ---- after a fence
// ---------------------------------------------------------------------------------------------------

void SessionImpl::apply_peer_received(std::uint64_t received) {
  if (received < last_acknowledged_ || received >= next_sequence_) {
    return fail({Code::kDataLoss, fmt::format("{} says it received up to message {}; {} were acknowledged and {} sent",
                                              who(), received, last_acknowledged_, next_sequence_ - 1)});
  }
  std::vector<MessageInFlight> missing;
  for (const MessageInFlight& entry : undelivered_) {
    if (entry.sequence > received) {
      missing.push_back(entry);
      continue;
    }
    // Delivered, though its acknowledgement was lost; and its data was placed before it.
    TransferImpl& t = *entry.transfer;
    if (t.list != nullptr) t.done_bytes = t.data_bytes();
    t.message_aborted = false;
    t.message_done = t.message_all_posted;
  }
  for (const MessageInFlight& entry : missing) {
    entry.transfer->message_aborted = true;
    entry.transfer->message_done = false;
  }
  undelivered_ = std::move(missing);
  last_acknowledged_ = std::max(last_acknowledged_, received);
  requeue_undelivered(received + 1);
  rebuild_queues();
}

void SessionImpl::rebuild_queues() {
  data_queue_.clear();
  for (TransferImpl* t = first_; t != nullptr;) {
    TransferImpl* next = t->next;
    if (t->list != nullptr && t->posted_bytes != t->done_bytes) {
      t->rewind();
      stats_.replayed_transfers.add();
    }
    if (t->failure == Code::kOk && t->done_bytes != t->data_bytes()) data_queue_.push_back(t);
    settle(*t);
    t = next;
  }
}

// ---- messages
// --------------------------------------------------------------------------------------------------------

void SessionImpl::on_path_message(Path& path, std::span<const std::byte> bytes) {
  if (slot_ == nullptr || slot_->path.get() != &path || phase_ == Phase::kClosed) return;
  dirty_ = true;
  const std::optional<PathMessage> message = decode(bytes);
  if (!message) {
    return fail({Code::kDataLoss, fmt::format("{} sent a malformed message of {} bytes", who(), bytes.size())});
  }
  switch (message->type) {
    case MessageType::kHello:
      if (message->sequence == slot_->epoch) slot_->hello_received = true;
      return;
    case MessageType::kNotify:
    case MessageType::kFragment:
      return handle_sequenced(*message);
    case MessageType::kConsumed:
      if (message->sequence > peer_consumed_ && message->sequence < next_sequence_) peer_consumed_ = message->sequence;
      return;
    case MessageType::kStagedWrite:
    case MessageType::kStagedReadRequest:
    case MessageType::kStagedReadData:
    case MessageType::kStagedAck:
      return handle_staged(*message);
  }
}

void SessionImpl::on_path_notification(Path& path, std::uint32_t value) {
  if (slot_ == nullptr || slot_->path.get() != &path || phase_ == Phase::kClosed) return;
  dirty_ = true;
  // It has no room for its number. What a path delivers is in the order of posting, and without gaps.
  PathMessage message;
  message.type = MessageType::kNotify;
  message.sequence = inbound_.received() + 1;
  message.value = value;
  handle_sequenced(message);
}

void SessionImpl::handle_sequenced(const PathMessage& message) {
  Event event;
  std::string why;
  switch (inbound_.take(message, inbox.pending(), event, why)) {
    case Inbound::Verdict::kKept:
      return;
    case Inbound::Verdict::kDuplicate:
      return stats_.duplicate_notifications_dropped.add();
    case Inbound::Verdict::kWrong:
      return fail({Code::kDataLoss, fmt::format("{} sent {}", who(), why)});
    case Inbound::Verdict::kEvent:
      if (event.kind == Event::Kind::kMessage) stats_.messages_received.add();
      return host_->queues().push_event(*this, std::move(event));
  }
}

void SessionImpl::send_consumed(bool eager) {
  const std::optional<std::uint64_t> due = inbound_.credit_due(inbox.pending(), eager);
  if (!due) return;
  PathMessage message;
  message.type = MessageType::kConsumed;
  message.sequence = *due;
  if (send_path_message(message, {MessageUse::kControl, nullptr, 0, 0})) inbound_.told(*due);
}

}  // namespace fairlead::datapath
