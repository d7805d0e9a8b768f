// Data: posting what the outbox has to the path, and what the path's completions and messages mean.
#include <fmt/format.h>

#include <algorithm>

#include "datapath/session/session.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kManyInFlight = Outbox::kBatch;

}  // namespace

// ---- transfers -----------------------------------------------------------------------------------------------------

void SessionImpl::accept_transfer(TransferImpl& t) {
  if (phase_ == Phase::kClosing || phase_ == Phase::kDraining || phase_ == Phase::kClosed || farewell_until_ ||
      close_deadline_ != Clock::time_point::max()) {
    const bool lost = !close_status_.ok();
    t.reason = lost ? close_status_.message() : fmt::format("the session with {} is closed", who());
    return transfer_ended(t, lost ? close_status_.code() : Code::kUnavailable);
  }
  outbox_.add(t);
  if (!is_gathering()) pump();
}

/// While many requests are on the path, a completion is near: what is posted until then goes out together, with one
/// doorbell and one signalled completion. Alone it would not come through sooner.
bool SessionImpl::is_gathering() noexcept {
  const PathSlot* slot = paths_.in_use();
  if (slot == nullptr || slot->in_flight.size() < kManyInFlight || ++gathered_ >= Outbox::kBatch) return false;
  dirty_ = true;
  return true;
}

void SessionImpl::transfer_ended(TransferImpl& t, Code code) {
  (code == Code::kOk ? stats_.transfers_completed : stats_.transfers_failed).add();
  if (t.list != nullptr) (t.list->kind == OpKind::kWrite ? stats_.bytes_written : stats_.bytes_read).add(t.done_bytes);
  if (t.is_send && code == Code::kOk) stats_.messages_sent.add();
  ended_.add();
  ended_bytes_.add(t.message.size());
  t.code = code;
  const bool report = t.report;
  if (report) add_reference(t);
  t.finished.store(true, std::memory_order_release);
  if (report) host_->queues().push_completed(t);
  drop_reference(t);
}

// ---- to the path ---------------------------------------------------------------------------------------------------

void SessionImpl::pump() {
  gathered_ = 0;
  if (paths_.in_use() == nullptr || farewell_until_) return;
  if (staged_target_.owes()) pump_staged();
  while (PathSlot* slot = paths_.in_use()) {
    // No more than the path takes: what it refuses was built in vain.
    const std::size_t room = slot->in_flight.room(slot->can->max_outstanding);
    const Outbox::Way way{slot->can, host_->transports()[slot->transport].offer.name, slot->transport,
                          slot->peer_transport, slot->write_failed};
    const std::span<const WorkRequest> requests = outbox_.build(way, room, slot->in_flight.next_id());
    if (requests.empty()) return;
    const std::size_t accepted = slot->path->post(requests);
    outbox_.commit(accepted, slot->in_flight);
    if (accepted < requests.size() || !outbox_.has_backlog()) return;
  }
}

bool SessionImpl::send_path_message(const PathMessage& message) {
  PathSlot* slot = paths_.open();
  if (slot == nullptr) return false;
  PathHeader header;
  encode(message, header);
  const LocalSegment segments[2] = {
      {header, kPathHeaderBytes, 0},
      {const_cast<std::byte*>(message.data.data()), message.data.size(), 0}};  // read by post() only
  const WorkRequest request{
      slot->in_flight.next_id(), OpKind::kMessage, {segments, message.data.empty() ? 1u : 2u}, 0, 0};
  if (slot->path->post({&request, 1}) == 0) return false;
  slot->in_flight.push({});
  return true;
}

void SessionImpl::pump_staged() {
  PathSlot* slot = paths_.open();
  if (slot == nullptr) return;
  staged_target_.pump(seen_by_peer(), slot->can->max_message,
                      [this](const PathMessage& message) { return send_path_message(message); });
}

void SessionImpl::send_consumed() {
  const std::optional<Inbound::Consumed> due = inbound_.credit_due(inbox.pending());
  if (!due) return;
  PathMessage message;
  message.type = MessageType::kConsumed;
  message.sequence = due->sequence;
  if (send_path_message(message)) inbound_.told(*due);
}

// ---- from the path -------------------------------------------------------------------------------------------------

void SessionImpl::on_completion(Path& path, std::uint64_t id, Code code) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr) return;
  dirty_ = true;
  if (code == Code::kOk) link_.live();
  if (id == kProbeId) return slot->on_probe(code);
  slot->moved = true;
  if (const std::optional<PostedRequest> request = slot->in_flight.end(id)) request_ended(*request, code);
}

void SessionImpl::request_ended(const PostedRequest& request, Code code) {
  switch (request.use) {
    case PostedRequest::Use::kControl:
    case PostedRequest::Use::kStagedOperation:
      if (code != Code::kOk) inbound_.forget_told();  // it may have been the word of our credits
      return;
    default:
      outbox_.completed(request, code);
  }
}

void SessionImpl::on_message(Path& path, std::span<const std::byte> bytes) noexcept {
  PathSlot* slot = paths_.find(path);
  if (slot == nullptr || phase_ == Phase::kClosed) return;
  dirty_ = true;
  link_.live();
  const std::optional<PathMessage> message = decode(bytes);
  if (!message) {
    return fail({Code::kDataLoss, fmt::format("{} sent a malformed message of {} bytes", who(), bytes.size())});
  }
  if (message->type != MessageType::kHello && !paths_.may_carry(*slot)) return fail_early();
  switch (message->type) {
    case MessageType::kHello:
      return slot->on_hello(message->sequence);
    case MessageType::kNotify:
    case MessageType::kFragment:
    case MessageType::kNotifyFragment:
      return handle_sequenced(*message);
    case MessageType::kConsumed:
      return outbox_.consumed(message->sequence);
    case MessageType::kStagedWrite:
    case MessageType::kStagedReadRequest:
    case MessageType::kStagedReadData:
    case MessageType::kStagedAck:
      return handle_staged(*message);
  }
}

void SessionImpl::fail_early() { fail({Code::kDataLoss, fmt::format("{} used a path beside the one in use", who())}); }

void SessionImpl::on_notification(Path& path, std::uint32_t value) noexcept {
  const PathSlot* slot = paths_.find(path);
  if (slot == nullptr || phase_ == Phase::kClosed) return;
  dirty_ = true;
  link_.live();
  if (!paths_.may_carry(*slot)) return fail_early();
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

void SessionImpl::handle_staged(const PathMessage& message) {
  std::string why;
  bool legal = true;
  switch (message.type) {
    case MessageType::kStagedWrite:
      legal = staged_target_.on_write(message, seen_by_peer(), why);
      break;
    case MessageType::kStagedReadRequest:
      legal = staged_target_.on_read(message, why);
      break;
    default:
      legal = outbox_.staged_answer(message, why);
      paths_.slot()->moved = true;
  }
  if (!legal) return fail({Code::kDataLoss, fmt::format("{} {}", who(), why)});
  if (staged_target_.owes()) pump_staged();
}

}  // namespace fairlead::datapath
