// Building one batch of work requests from the queues of an outbox, and taking back what the path had no room for.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/tally.h"
#include "datapath/flow/outbox.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kBatchBytes = 64 * 1024;  // of messages: a path that is full has turned no more than that away
constexpr std::size_t kLookAhead = 16;          // transfers that another path looks at, for one that is worth spreading

/// Of what is no more than two stripes the first path is rid as soon.
bool is_spread(const Outbox::Way& way, const TransferImpl& t) noexcept {
  return way.stripe != 0 && t.data_bytes() > 2 * way.stripe;
}

/// Where the first byte is of what is next: behind empty pieces, which have none. There is one.
Cursor first_byte(const TransferImpl& t) noexcept {
  Cursor first = t.next_data();
  while (t.list->ops[first.op].length == first.offset) first = {first.op + 1, 0};
  return first;
}

const Op& next_op(const TransferImpl& t) noexcept { return t.list->ops[first_byte(t).op]; }

}  // namespace

std::span<const WorkRequest> Outbox::build(const Way& way, std::size_t room, std::uint64_t first_id) {
  count_ = segments_used_ = message_bytes_ = 0;
  share_left_ = way.share;
  while (count_ < std::min(room, kBatch) && message_bytes_ < kBatchBytes &&
         ((way.rail == 0 && build_message(way)) || build_data(way)))
    ++count_;
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
      staged_.push({&t, b.request.bytes, b.request.sequence, b.request.at, read, 0, false, Code::kOk});
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
  if (next == nullptr) return false;
  TransferImpl& t = *next;
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
    segments[used++] = {t.message.data(), t.message.size(), 0};
  } else if (t.has_bytes()) {
    const std::uint64_t room = way.can->max_message - kPathHeaderBytes;
    const std::uint64_t length = std::min<std::uint64_t>(room, t.message.size() - t.message_posted);
    message.type = t.is_send ? MessageType::kFragment : MessageType::kNotifyFragment;
    message.offset = t.message_posted;
    message.total = t.message.size();
    if (length != 0) segments[used++] = {t.message.data() + t.message_posted, length, 0};
    t.message_posted += length;
    message_bytes_ += weight = length;
    last = t.message_posted == t.message.size();
  } else {
    message.type = MessageType::kNotify;
  }
  const bool counts = !t.is_outcome && t.atomic == AtomicOp::kNone;
  message.sequence = built.request.sequence = counts ? window_.take(weight) : window_.take_uncounted();
  encode(message, headers_[count_]);
  segments[0] = {headers_[count_], kPathHeaderBytes, 0};
  requests_[count_] = {0, OpKind::kMessage, {segments, used}, 0, 0};
  segments_used_ += used;
  t.message_all_posted = last;
  built.leaves_queue = last;
  if (last) t.in_messages.unlink();
  return true;
}

/// Its last write may take the notification along: one request, and on the wire one packet, instead of two.
bool Outbox::may_carry_notification(const Way& way, const TransferImpl& t) noexcept {
  return way.can->write_notifies && !t.by_message && t.has_message && !t.has_bytes() &&
         t.list->kind == OpKind::kWrite && t.comes_before_next() &&
         t.value <= std::numeric_limits<std::uint32_t>::max() && !holding_ && !message_queue_.empty() &&
         message_queue_.front() == &t && window_.open();
}

// ---- data ----------------------------------------------------------------------------------------------------------

/// The transfer whose data is next; those that cannot go on are ended. Null: none, or none in this batch.
TransferImpl* Outbox::next_with_data(const Way& way) {
  while (!data_queue_.empty()) {
    TransferImpl& t = *data_queue_.front();
    if (t.failure != Code::kOk) {
      t.in_data.unlink();
      continue;
    }
    const Op& op = next_op(t);
    const bool gone = op.remote->is_gone(), bounced = bounces(way, op);
    if (!gone && !bounced) return &t;
    if (in_batch(t)) return nullptr;  // as above
    if (!gone && apart_ != nullptr) {
      set_apart(way, t);
      continue;
    }
    if (gone) {
      fail_transfer(t, Code::kProtectionError, op.remote);
    } else {
      t.failure = Code::kUnimplemented;
      t.reason = "this end's GPU memory cannot be reached over the path, and nothing carries it apart";
    }
    settle(t);
  }
  return nullptr;
}

/// It is in no domain of both ends' (yet), or a device does not reach it: the peer granted no key for this path, or the
/// path does not know our memory.
bool Outbox::goes_by_message(const Way& way, const Op& op) noexcept {
  return way.staged || op.remote->key(way.peer_transport).key == 0 || !way.local_key(*op.range);
}

/// Whether its memory is a GPU's that the path does not reach, nor the CPU.
bool Outbox::bounces(const Way& way, const Op& op) noexcept { return op.range->is_cuda() && goes_by_message(way, op); }

/// Its next parts are carried apart, as far as they must.
void Outbox::set_apart(const Way& way, TransferImpl& t) {
  while (t.has_unposted()) {
    const Op& op = next_op(t);
    if (!bounces(way, op)) return;
    Built built;
    const Cursor at = first_byte(t);
    const std::uint64_t bytes = begin_data(t, op.length - at.offset, built);
    end_data(t, bytes, {at.op, at.offset + bytes}, built);
    ++t.outstanding;
    ++t.apart;
    ++t.held_apart;
    apart_->take(t, {built.request.at, bytes});
  }
  t.in_data.unlink();
}

/// What is next of it: what was posted in vain before what never was. Returns its end, `limit` bytes on at most.
std::uint64_t Outbox::begin_data(TransferImpl& t, std::uint64_t limit, Built& built) {
  built.again = !t.again.empty();
  built.cursor = t.next_data();
  built.request.at = built.again ? t.again.front().at : t.posted_bytes;
  return std::min(limit, built.again ? t.again.front().bytes : limit);
}

/// So much of that was taken, up to `behind`.
void Outbox::end_data(TransferImpl& t, std::uint64_t bytes, const Cursor& behind, Built& built) {
  built.request.bytes = bytes;
  if (built.again) {
    Extent& part = t.again.front();
    part.at += bytes;
    part.bytes -= bytes;
    if (part.bytes == 0) t.again.erase(t.again.begin());
  } else {
    t.posted_bytes += bytes;
    t.cursor = behind;
  }
  built.leaves_queue = !t.has_unposted();
}

/// Gathers what follows the cursor into one request: up to `limit` bytes of adjacent remote memory.
std::uint64_t Outbox::take_segments(const Way& way, const TransferImpl& t, Cursor& cursor, std::uint64_t limit,
                                    std::size_t most, bool copies, WorkRequest& request) {
  const std::span<const Op> ops = t.list->ops;
  while (cursor.op < ops.size() && ops[cursor.op].length == cursor.offset) cursor = {cursor.op + 1, 0};  // empty pieces
  const Op& first = ops[cursor.op];
  const RemoteRegionImpl::Key key = first.remote->key(way.peer_transport);
  const std::uint64_t remote_begin = first.offset + cursor.offset;
  LocalSegment* const segments = segments_ + segments_used_;
  std::size_t used = 0;
  std::uint64_t bytes = 0;
  while (cursor.op < ops.size() && used < most && bytes < limit) {
    const Op& op = ops[cursor.op];
    if (op.remote != first.remote || op.offset + cursor.offset != remote_begin + bytes) break;
    if (&op != &first && op.length != 0 && bounces(way, op)) break;
    const std::uint64_t length = std::min(op.length - cursor.offset, limit - bytes);
    if (length != 0) {
      // By message the bytes are copied, and need no key. Else the first of them has one.
      const std::optional<std::uint64_t> key = copies ? 0 : way.local_key(*op.range);
      if (!key) break;
      segments[used++] = {op.data + cursor.offset, length, *key};
    }
    bytes += length;
    cursor.offset += length;
    if (cursor.offset == op.length) cursor = {cursor.op + 1, 0};
  }
  request.local = {segments, used};
  request.remote_address = key.address + remote_begin;
  request.remote_key = key.key;
  segments_used_ += used;
  return bytes;
}

/// The first of the next ones that is large enough to be spread, and that this path reaches. What is wrong with one
/// shows on the first path.
TransferImpl* Outbox::next_to_spread(const Way& way) {
  std::size_t looked_at = 0;
  for (TransferImpl* t = data_queue_.front(); t != nullptr; t = List<TransferImpl>::next(t->in_data)) {
    if (++looked_at > kLookAhead) return nullptr;
    if (t->failure != Code::kOk || !is_spread(way, *t)) continue;
    const Op& op = next_op(*t);
    if (!op.remote->is_gone() && !goes_by_message(way, op)) return t;
  }
  return nullptr;
}

bool Outbox::build_data(const Way& way) {
  TransferImpl* next = way.rail == 0 ? next_with_data(way) : next_to_spread(way);
  if (next == nullptr) return false;
  TransferImpl& t = *next;
  const bool spread = is_spread(way, t);
  if (spread && share_left_ == 0) return false;
  const std::size_t room = kSegments - segments_used_;
  if (room < 2) return false;
  if (goes_by_message(way, next_op(t))) return build_staged(way, t);
  Built& built = built_[count_];
  const Use use = t.list->kind == OpKind::kWrite ? Use::kWrite : Use::kRead;
  built = {{use, way.rail, &t, 0, 0, 0}, {}, false, false};
  WorkRequest& request = requests_[count_];
  request.kind = t.list->kind;
  const std::uint64_t limit = begin_data(t, spread ? way.stripe : chunk_bytes_, built);
  Cursor cursor = built.cursor;
  const std::uint64_t bytes =
      take_segments(way, t, cursor, limit, std::min<std::size_t>(way.can->max_segments, room), false, request);
  end_data(t, bytes, cursor, built);
  share_left_ -= std::min(share_left_, bytes);
  if (built.leaves_queue) t.in_data.unlink();
  request.notify.reset();
  if (way.rail == 0 && may_carry_notification(way, t)) {
    request.notify = static_cast<std::uint32_t>(t.value);
    built.request.use = Use::kNotifyingWrite;
    built.request.sequence = window_.take(0);
    t.message_all_posted = true;
    t.in_messages.unlink();
  }
  return true;
}

/// The same by message, over a path that has no one-sided operations (staging.h).
bool Outbox::build_staged(const Way& way, TransferImpl& t) {
  const bool read = t.list->kind == OpKind::kRead;
  std::size_t unposted_reads = 0, unposted = 0;  // earlier ones of this batch
  for (std::size_t i = 0; i < count_; ++i) {
    if (built_[i].request.use != Use::kStagedOperation) continue;
    ++unposted;
    unposted_reads += built_[i].request.transfer->list->kind == OpKind::kRead ? 1 : 0;
  }
  if (!staged_.has_room(read, unposted, unposted_reads)) return false;
  t.by_message = true;
  Built& built = built_[count_];
  built = {{Use::kStagedOperation, 0, &t, 0, 0, staged_.take_number()}, {}, false, false};
  ++t.apart;
  const Cursor first = first_byte(t);
  const std::uint64_t limit =
      begin_data(t, read ? staging::kReadBytes : way.can->max_message - kPathHeaderBytes, built);
  LocalSegment* segments = segments_ + segments_used_;
  ++segments_used_;  // the header's
  WorkRequest data;
  Cursor cursor = built.cursor;
  const std::uint64_t bytes =
      take_segments(way, t, cursor, limit, std::min<std::size_t>(kSegments - segments_used_, 16), true, data);
  end_data(t, bytes, cursor, built);
  const Op& op = t.list->ops[first.op];
  PathMessage message;
  message.type = read ? MessageType::kStagedReadRequest : MessageType::kStagedWrite;
  message.sequence = built.request.sequence;
  message.value = op.remote->id;
  message.offset = op.offset + first.offset;
  message.length = static_cast<std::uint32_t>(built.request.bytes);
  encode(message, headers_[count_]);
  segments[0] = {headers_[count_], kPathHeaderBytes, 0};
  const std::size_t used = read ? 1 : 1 + data.local.size();
  if (read) segments_used_ -= data.local.size();
  requests_[count_] = {0, OpKind::kMessage, {segments, used}, 0, 0};
  if (built.leaves_queue) t.in_data.unlink();
  return true;
}

}  // namespace fairlead::datapath
