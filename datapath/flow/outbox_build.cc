// Building one batch of work requests from the queues of an outbox, and taking back what the path had no room for.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/guarded.h"
#include "base/tally.h"
#include "datapath/flow/outbox.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kBatchBytes = 64 * 1024;  // of messages: a path that is full has turned no more than that away

/// Behind post(), which sends zeros for what is not (transport/message_bytes.h).
bool is_there(std::span<const LocalSegment> data) noexcept {
  return std::ranges::all_of(data, [](const LocalSegment& each) { return readable(each.data, each.length); });
}

}  // namespace

void Outbox::begin_batch(const Way& way) noexcept {
  count_ = segments_used_ = message_bytes_ = 0;
  share_left_ = way.share;
  known_ = {};
}

std::span<const WorkRequest> Outbox::build(const Way& way, std::size_t room, std::uint64_t first_id) {
  begin_batch(way);
  const std::size_t most = std::min(room, kBatch);
  while (count_ < most && message_bytes_ < kBatchBytes) {
    const bool may_tell = way.rail == 0 && !(message_queue_.empty() && outcomes_.empty());
    if (!(may_tell && build_message(way)) && !build_data(way, most)) break;
    ++count_;
  }
  for (std::size_t i = 0; i < count_; ++i) requests_[i].id = first_id + i;
  return {requests_, count_};
}

std::uint64_t Outbox::commit(std::size_t accepted, InFlight& path) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < accepted; ++i) {
    const Built& b = built_[i];
    TransferImpl& t = *b.request.transfer;
    const Use use = b.request.use;
    path.push(b.request);
    if (use == Use::kSequenced || use == Use::kNotifyingWrite) {
      ++t.messages_outstanding;
      ++sequenced_in_flight_;
    }
    if (use != Use::kSequenced) {
      ++t.outstanding;
      t.on_rails += b.request.rail != 0 ? 1 : 0;
      bytes += b.request.bytes;
    }
    if (use == Use::kStagedOperation) {
      const bool read = t.list->kind == OpKind::kRead;
      const Code code = read || is_there(requests_[i].local.subspan(1)) ? Code::kOk : Code::kDataLoss;
      staged_.push({&t, b.request.bytes, b.request.sequence, b.request.at, read, 0, false, code, b.cursor});
    }
  }
  for (std::size_t i = count_; i > accepted; --i) {  // newest first, so that queues and cursors go back step by step
    const Built& b = built_[i - 1];
    TransferImpl& t = *b.request.transfer;
    if (b.request.use == Use::kSequenced || b.request.use == Use::kNotifyingWrite) {
      if (b.request.use == Use::kSequenced) t.message_posted = t.message_offset_of(b.request.at);
      t.message_all_posted = false;
      window_.give_back(b.request.sequence);
      if (b.leaves_queue) messages_like(t).push_front(t.in_messages);
      if (b.request.use == Use::kSequenced) continue;
    }
    if (b.request.use == Use::kStagedOperation) {
      staged_.give_back(b.request.sequence);
      --t.apart;
    }
    if (b.again) {
      t.post_again({b.request.at, b.request.bytes});
    } else {
      t.posted_bytes = b.request.at;
      t.cursor = b.cursor;
    }
    if (b.leaves_queue) data_queue_.push_front(t.in_data);
  }
  count_ = 0;
  return bytes;
}

// ---- notifications and messages ------------------------------------------------------------------------------------

bool Outbox::message_ready(const Way& way, const TransferImpl& t) const noexcept {
  if (t.list == nullptr || t.done_bytes == t.data_bytes()) return true;
  // Behind its writes on an ordered path the notification may follow at once; else it waits for their completion.
  return t.list->kind == OpKind::kWrite && t.comes_before_next() && !way.staged && !t.by_message &&
         way.can->write_then_message_ordered;
}

bool Outbox::in_batch(const TransferImpl& t) const noexcept {
  return std::any_of(built_, built_ + count_, [&t](const Built& built) { return built.request.transfer == &t; });
}

/// The transfer whose message is next; those that end without theirs are ended. Null: none, or it has to wait.
TransferImpl* Outbox::next_with_message(const Way& way) {
  if (!outcomes_.empty()) return outcomes_.front();
  while (TransferImpl* const t = message_queue_.front()) {
    const bool atomic = t->atomic != AtomicOp::kNone;
    const bool gone = atomic && t->own.ops.front().remote->is_gone(),
               large = !atomic && t->message.size() > max_message_;
    if (t->failure == Code::kOk && !gone && !large) {
      if (atomic) return t->ticket != 0 || awaited_.has_room() ? t : nullptr;
      if (!message_ready(way, *t)) return nullptr;
      const bool waits = !window_.open();
      if (waits != waits_for_credits.load(std::memory_order_relaxed)) {
        waits_for_credits.store(waits, std::memory_order_relaxed);
        if (waits) tally().credit_waits.fetch_add(1, std::memory_order_relaxed);
      }
      return waits ? nullptr : t;
    }
    if (in_batch(*t)) return nullptr;  // what the batch holds of it is posted first: a transfer that ends may be gone
    if (t->failure == Code::kOk && gone) {
      fail_transfer(*t, Code::kProtectionError, t->own.ops.front().remote);
    } else if (t->failure == Code::kOk) {
      t->failure = Code::kInvalidArgument;
      t->reason = fmt::format("a message of {} bytes; {} takes at most {} (its max_message_bytes)", t->message.size(),
                              user_.who(), max_message_);
    }
    t->in_messages.unlink();
    settle(*t);
  }
  return nullptr;
}

bool Outbox::build_message(const Way& way) {
  if (holding_ || segments_used_ + 2 > kSegments) return false;
  TransferImpl* const next = next_with_message(way);
  if (next != nullptr) put_message(way, *next);
  return next != nullptr;
}

/// There is no other to be posted. One that has to wait, or to be ended, goes through the queue.
bool Outbox::build_lone_message(const Way& way, TransferImpl& t) {
  const bool counts = !t.is_outcome && t.atomic == AtomicOp::kNone;
  const bool fits = t.message.size() <= std::min(max_message_, way.can->max_message - kPathHeaderBytes);
  if (!counts || !fits || holding_ || !window_.open() || waits_for_credits.load(std::memory_order_relaxed))
    return false;
  begin_batch(way);
  put_message(way, t);
  return true;
}

void Outbox::put_message(const Way& way, TransferImpl& t) {
  PathMessage message;
  message.value = t.value;
  LocalSegment* segments = segments_ + segments_used_;
  std::size_t used = 1;
  bool last = true;
  std::uint64_t weight = 0;
  Built& built = built_[count_];
  built = {{Use::kSequenced, 0, &t, t.message_posted, 0, 0}, {}, false, false};
  if (t.is_outcome) {
    message.type = MessageType::kOutcome;
    message.code = t.verdict;
    message.total = t.ticket;
  } else if (t.atomic != AtomicOp::kNone) {
    if (t.ticket == 0) awaited_.add(t);
    const Op& word = t.own.ops.front();
    message.type = MessageType::kAtomic;
    message.length = static_cast<std::uint32_t>(t.atomic);
    message.value = word.remote->id;
    message.offset = word.offset;
    message.total = t.ticket;
    segments[used++] = {t.message.data(), t.message.size(), kOwnBytes};
  } else if (t.has_bytes()) {
    const std::uint64_t room = way.can->max_message - kPathHeaderBytes;
    const std::uint64_t length = std::min<std::uint64_t>(room, t.message.size() - t.message_posted);
    message.type = t.is_send ? MessageType::kFragment : MessageType::kNotifyFragment;
    message.offset = t.message_posted;
    message.total = t.message.size();
    if (length != 0) segments[used++] = {t.message.data() + t.message_posted, length, kOwnBytes};
    t.message_posted += length;
    message_bytes_ += weight = length;
    last = t.message_posted == t.message.size();
  } else {
    message.type = MessageType::kNotify;
  }
  const bool counts = !t.is_outcome && t.atomic == AtomicOp::kNone;
  message.sequence = built.request.sequence = counts ? window_.take(weight) : window_.take_uncounted();
  encode(message, headers_[count_]);
  segments[0] = {headers_[count_], kPathHeaderBytes, kOwnBytes};
  requests_[count_] = {0, OpKind::kMessage, {segments, used}, 0, 0};
  segments_used_ += used;
  t.message_all_posted = last;
  built.leaves_queue = last;
  if (last) t.in_messages.unlink();
}

/// Its last write may take the notification along, if all before it is placed or on the way: one request, and on the
/// wire one packet, instead of two.
bool Outbox::may_carry_notification(const Way& way, const TransferImpl& t) noexcept {
  return way.can->write_notifies && !t.by_message && t.has_message && !t.has_bytes() &&
         t.list->kind == OpKind::kWrite && t.value <= std::numeric_limits<std::uint32_t>::max() && !holding_ &&
         (message_queue_.empty() || message_queue_.front() == &t) && window_.open();
}

}  // namespace fairlead::datapath
