// Transfers: their order, their ends, and what is said again.
#include "datapath/flow/outbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "datapath/protocol/peer_text.h"

namespace fairlead::datapath {
namespace {

/// The path went away under the operation: not the operation's fault, it is posted again.
bool is_innocent(Code code) { return code == Code::kAborted || code == Code::kUnavailable || code == Code::kPeerDied; }

/// What the byte at `offset` of a list belongs to.
const RemoteRegionImpl* region_at(const TransferImpl& t, std::uint64_t offset) {
  for (const Op& op : t.list->ops) {
    if (offset < op.length) return op.remote;
    offset -= op.length;
  }
  return nullptr;
}

Nanos nanos(Clock::time_point time) noexcept { return static_cast<Nanos>(time.time_since_epoch().count()); }

}  // namespace

void Outbox::enlist(TransferImpl& t) noexcept {
  t.previous = last_;
  t.next = nullptr;
  (last_ != nullptr ? last_->next : first_) = &t;
  last_ = &t;
}

void Outbox::delist(TransferImpl& t) noexcept {
  (t.previous != nullptr ? t.previous->next : first_) = t.next;
  (t.next != nullptr ? t.next->previous : last_) = t.previous;
}

/// For its deadline.
bool Outbox::make_room(const TransferImpl& t) noexcept {
  if (t.deadline == Clock::time_point::max() || active_ < timers_) return true;
  const std::size_t more = 2 * (active_ + 1);
  if (!deadlines_.try_reserve(more)) return false;
  timers_ = more;
  return true;
}

bool Outbox::add(TransferImpl& t, bool waits) {
  if (!make_room(t)) return false;
  t.active = t.waits = true;
  enlist(t);
  ++active_;
  if (t.deadline != Clock::time_point::max()) deadlines_.wake(t.timer, nanos(t.deadline));
  if (!waits) queue(t);
  return true;
}

void Outbox::let_go(TransferImpl& t) {
  if (!t.active || t.failure != Code::kOk) return;
  delist(t);
  enlist(t);
  queue(t);
}

void Outbox::queue(TransferImpl& t) {
  t.waits = false;
  if (t.has_unposted()) data_queue_.push_back(t.in_data);
  if (t.has_message && !t.message_all_posted) messages_like(t).push_back(t.in_messages);
  if (t.data_bytes() == 0 && !t.has_message) settle(t);
}

// ---- completions ---------------------------------------------------------------------------------------------------

void Outbox::completed(const PostedRequest& request, Code code) {
  assert(request.transfer != nullptr);
  if (request.use == Use::kApart) {
    --request.transfer->apart;
    --request.transfer->held_apart;
    if (code != Code::kOk) {  // whoever carried it has said why
      --request.transfer->outstanding;
      return settle(*request.transfer);
    }
  }
  if (request.use != Use::kSequenced) {
    if (request.rail != 0) --request.transfer->on_rails;
    data_completed({request.transfer, {request.at, request.bytes}, request.rail}, code);
  }
  if (request.use == Use::kSequenced || request.use == Use::kNotifyingWrite) message_completed(request, code);
}

void Outbox::placed(TransferImpl& t, std::uint64_t bytes, std::uint32_t count) {
  assert(t.outstanding >= count);
  t.outstanding -= count;
  t.done_bytes += bytes;
  ends_plainly(t) ? end_plainly(t) : settle(t);
}

void Outbox::data_completed(const DataPart& data, Code code) {
  TransferImpl& t = *data.transfer;
  if (code == Code::kOk) return placed(t, data.part.bytes, 1);
  assert(t.outstanding >= 1);
  --t.outstanding;
  if (!is_innocent(code)) {
    fail_transfer(t, code, region_at(t, data.part.at));
    // Messages in flight behind the refused write come back; none may overtake them.
    if (data.rail == 0 && sequenced_in_flight_ != 0) holding_ = true;
  } else {
    lost_.push_back(data);
    ++t.lost;
  }
  settle(t);
}

void Outbox::message_completed(const PostedRequest& request, Code code) {
  TransferImpl& t = *request.transfer;
  assert(t.messages_outstanding != 0 && sequenced_in_flight_ != 0);
  --t.messages_outstanding;
  --sequenced_in_flight_;
  if (code == Code::kOk) {
    acknowledged_ = request.sequence;
    if (t.message_all_posted && t.messages_outstanding == 0 && !t.message_aborted) t.message_done = true;
  } else {
    t.message_aborted = true;
    undelivered_.push_back(request);
  }
  // What came back on a path that lives is posted again once everything behind it came back too; whether the path
  // lives shows when this poll is over.
  if (!undelivered_.empty()) holding_ = true;
  settle(t);
}

bool Outbox::staged_answer(const PathMessage& message, bool& moved, std::string& why) {
  const bool data = message.type == MessageType::kStagedReadData;
  if (!(data ? staged_.on_data(message, why) : staged_.on_ack(message, why))) return false;
  moved |= staged_.take_news();
  staged_.retire([this](const staging::Initiator::Operation& operation) {
    if (operation.code == Code::kOk) staged_bytes.add(operation.bytes);
    --operation.transfer->apart;
    data_completed({operation.transfer, {operation.at, operation.bytes}, 0}, operation.code);
  });
  return true;
}

bool Outbox::say(std::uint64_t ticket, const atomics::Outcome& outcome, std::size_t path_depth) {
  // What an honest peer waits for, and what has arrived though the path has not said so.
  if (outcomes_held_ >= atomics::Awaited::kMost + path_depth) return false;
  TransferImpl& t = *acquire_transfer();
  t.is_outcome = t.has_message = true;
  t.ticket = ticket;
  t.verdict = outcome.code;
  t.value = outcome.held;
  ++outcomes_held_;
  add(t);
  return true;
}

bool Outbox::take_outcome(const PathMessage& message, std::string& why) {
  TransferImpl* const t = awaited_.find(message.total);
  const bool answers = t != nullptr && t->is_open_atomic();
  if (!answers || (message.code != Code::kOk && message.code != Code::kProtectionError)) {
    why = fmt::format("'{}' as the outcome of atomic {}{}", to_string(message.code), message.total,
                      answers ? "" : ", which waits for none");
    return false;
  }
  awaited_.remove(*t);
  t->has_outcome = true;
  if (message.code == Code::kOk) {
    t->value = message.value;
  } else {
    fail_transfer(*t, message.code, t->own.ops.front().remote);
    t->verdict = t->failure;
  }
  settle(*t);
  return true;
}

void Outbox::abort_staged() {
  staged_.reset([this](const staging::Initiator::Operation& operation) {
    --operation.transfer->apart;
    data_completed({operation.transfer, {operation.at, operation.bytes}, 0}, operation.code);
  });
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void Outbox::fail_transfer(TransferImpl& t, Code code, const RemoteRegionImpl* refused) {
  if (t.failure != Code::kOk) return;
  t.failure = code;
  if (code == Code::kProtectionError && refused != nullptr) {
    auto none = RemoteRegionImpl::Gone::kNot;
    refused->gone.compare_exchange_strong(none, RemoteRegionImpl::Gone::kRefused, std::memory_order_relaxed);
    t.reason = gone_because(user_.who(), *refused);
  } else if (code == Code::kDataLoss) {
    t.reason = "this end's memory went away under the transfer: it was unmapped, or its file was cut short";
  } else {
    t.reason = fmt::format("the path to {} failed the operation", user_.who());
  }
}

/// By the million: all of it is placed, and there is nothing else to it.
bool Outbox::ends_plainly(const TransferImpl& t) noexcept {
  return t.outstanding == 0 && t.done_bytes == t.data_bytes() && t.active && !t.has_message && !t.waits &&
         t.failure == Code::kOk && t.lost == 0 && !t.is_piece && t.deadline == Clock::time_point::max();
}

void Outbox::end_plainly(TransferImpl& t) {
  t.active = false;
  delist(t);
  --active_;
  t.in_data.unlink();
  user_.transfer_ended(t, Code::kOk);
}

void Outbox::settle(TransferImpl& t) {
  if (!t.active || t.outstanding != 0 || t.messages_outstanding != 0) return;
  if (t.waits) return t.failure != Code::kOk ? finish(t, t.failure) : void();
  if (t.is_open_atomic()) return;
  const bool data_done = t.done_bytes == t.data_bytes();
  if (data_done && (!t.has_message || t.message_done)) return finish(t, t.verdict);
  // An aborted part of it may have been delivered, or be on the wire: only the fence ends that (apply_received).
  if (t.failure != Code::kOk && !t.message_aborted && !t.may_land()) finish(t, t.failure);
}

/// It is none of ours any more.
void Outbox::forget(TransferImpl& t) noexcept {
  t.active = false;
  delist(t);
  --active_;
  t.in_data.unlink();
  if (t.has_message) t.in_messages.unlink();
  if (message_queue_.empty() && waits_for_credits.load(std::memory_order_relaxed)) {
    waits_for_credits.store(false, std::memory_order_relaxed);
  }
  if (t.failure != Code::kOk) t.in_stuck.unlink();
  if (t.deadline != Clock::time_point::max()) deadlines_.remove(t.timer);
  if (t.atomic != AtomicOp::kNone) awaited_.remove(t);
  if (t.lost != 0) std::erase_if(lost_, [&t](const DataPart& lost) { return lost.transfer == &t; });
}

void Outbox::finish(TransferImpl& t, Code code) {
  forget(t);
  if (t.is_piece) return apart_->piece_ended(t, code);
  if (t.is_outcome) {
    --outcomes_held_;
    return drop_reference(t);
  }
  user_.transfer_ended(t, code);
}

TransferImpl* Outbox::give_back() noexcept {
  TransferImpl* const oldest = first_;
  if (oldest != nullptr) forget(*oldest);
  return oldest;
}

void Outbox::end_early(TransferImpl& t, Clock::time_point now, Code code, std::string reason) {
  if (!t.active) return;
  if (t.failure == Code::kOk) {  // the first counts
    t.failure = code;
    t.reason = std::move(reason);
  }
  const bool has_memory = t.atomic == AtomicOp::kNone;  // of the caller's on the path
  if (has_memory && !t.in_stuck.linked()) {
    t.stuck_since = now;
    stuck_.push_back(t.in_stuck);
  }
  settle(t);
}

void Outbox::end_late(Clock::time_point now) {
  while (TransferImpl* t = deadlines_.pop_due(nanos(now))) {
    end_early(*t, now, Code::kDeadlineExceeded,
              fmt::format("the deadline passed with {} of {} bytes placed", t->done_bytes, t->data_bytes()));
  }
}

void Outbox::end_all(Code code, const std::string& reason) {
  data_queue_.clear();
  message_queue_.clear();
  outcomes_.clear();
  undelivered_.clear();
  while (first_ != nullptr) {
    TransferImpl& t = *first_;
    if (t.has_outcome) {
      finish(t, t.verdict);
      continue;
    }
    if (t.is_open_atomic()) {  // only the peer could have told
      t.failure = Code::kOutcomeUnknown;
      t.reason = fmt::format("the peer may have carried out the atomic all the same: {}", reason);
    } else if (t.failure == Code::kOk) {
      t.failure = code;
      t.reason = reason;
    } else if (t.message_aborted) {  // only a fence could have told
      t.failure = Code::kOutcomeUnknown;
      t.reason = fmt::format("{}; its notification or message may have arrived all the same: {}", t.reason, reason);
    }
    finish(t, t.failure);
  }
}

// ---- what is said again --------------------------------------------------------------------------------------------

bool Outbox::requeue() {
  if (!holding_ || sequenced_in_flight_ != 0) return false;
  const bool with_data = !lost_.empty();  // of writes that carried notifications, turned away with them
  if (with_data) take_lost(0, false);
  requeue_messages(undelivered_.empty() ? window_.next() : undelivered_.front().sequence);
  if (with_data) rebuild_data_queue();
  return true;
}

/// Numbers what was not delivered anew, from `next_sequence` on, and queues it in the order of posting.
void Outbox::requeue_messages(std::uint64_t next_sequence) {
  for (const PostedRequest& request : undelivered_) {
    TransferImpl& t = *request.transfer;
    if (!t.message_aborted) continue;  // an earlier part of it has reset it
    t.message_posted = t.message_offset_of(request.at);
    t.message_all_posted = t.message_aborted = false;
  }
  undelivered_.clear();
  holding_ = false;
  window_.give_back(next_sequence);
  message_queue_.clear();
  outcomes_.clear();
  for (TransferImpl* t = first_; t != nullptr; t = t->next) {
    if (t->has_message && !t->message_all_posted && !t->waits && t->failure == Code::kOk)
      messages_like(*t).push_back(t->in_messages);
  }
  for (TransferImpl* t = first_; t != nullptr;) {
    TransferImpl* next = t->next;
    if (t->failure != Code::kOk) settle(*t);
    t = next;
  }
}

bool Outbox::apply_received(std::uint64_t received, std::string& why) {
  if (received < acknowledged_ || received >= window_.next()) {
    why = fmt::format("says it received up to message {}; {} were acknowledged and {} sent", received, acknowledged_,
                      window_.next() - 1);
    return false;
  }
  std::vector<PostedRequest> missing;
  for (const PostedRequest& request : undelivered_) {
    if (request.sequence > received) {
      missing.push_back(request);
      continue;
    }
    // Delivered, though its acknowledgement was lost; and its data was placed before it.
    TransferImpl& t = *request.transfer;
    if (t.list != nullptr) t.done_bytes = t.data_bytes();
    t.message_aborted = false;
    t.message_done = t.message_all_posted;
  }
  for (const PostedRequest& request : missing) {
    request.transfer->message_aborted = true;
    request.transfer->message_done = false;
  }
  undelivered_ = std::move(missing);
  acknowledged_ = std::max(acknowledged_, received);
  take_lost(0);
  requeue_messages(received + 1);
  rebuild_data_queue();
  return true;
}

void Outbox::fenced(std::uint8_t rail) {
  take_lost(rail);
  rebuild_data_queue();
}

/// What was lost with the path cannot land any more, and is to be posted again.
void Outbox::take_lost(std::uint8_t rail, bool by_path) {
  for (const DataPart& lost : lost_) {
    if (lost.rail != rail) continue;
    TransferImpl& t = *lost.transfer;
    --t.lost;
    if (t.done_bytes == t.data_bytes()) continue;  // placed all the same, as its notification says
    if (by_path && t.again.empty()) replayed.add();
    t.post_again(lost.part);
  }
  std::erase_if(lost_, [rail](const DataPart& lost) { return lost.rail == rail; });
}

void Outbox::rebuild_data_queue() {
  data_queue_.clear();
  for (TransferImpl* t = first_; t != nullptr;) {
    TransferImpl* next = t->next;
    t->rewind();
    if (t->failure == Code::kOk && !t->waits && t->has_unposted()) data_queue_.push_back(t->in_data);
    settle(*t);
    t = next;
  }
}

}  // namespace fairlead::datapath
