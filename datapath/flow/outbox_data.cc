// The data of transfers as work requests: which is next, in what pieces, and by which way: one-sided, by message, or
// carried apart.
#include <algorithm>

#include "datapath/flow/outbox.h"

namespace fairlead::datapath {
namespace {

constexpr std::size_t kLookAhead = 16;  // transfers that another path looks at, for one that is worth spreading

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

PostedRequest::Use one_sided_use(const TransferImpl& t) noexcept {
  return t.list->kind == OpKind::kWrite ? PostedRequest::Use::kWrite : PostedRequest::Use::kRead;
}

}  // namespace

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
    if (in_batch(t)) return nullptr;  // what the batch holds of it is posted first
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

/// Looked up once for all that a batch has of it in a row.
std::optional<std::uint64_t> Outbox::local_key(const Way& way, const RegisteredRange& range) noexcept {
  if (known_.range != &range) {
    std::uint64_t key = 0;
    known_ = {&range, way.has_local_key(range, key) ? std::optional(key) : std::nullopt};
  }
  return known_.key;
}

/// It is in no domain of both ends' (yet), or a device does not reach it: the peer granted no key for this path, or the
/// path does not know our memory.
bool Outbox::goes_by_message(const Way& way, const Op& op) noexcept {
  return way.staged || op.remote->key(way.peer_transport).key == 0 || !local_key(way, *op.range);
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
    apart_->take(t, {built.request.at, bytes}, at);
  }
  t.in_data.unlink();
}

/// What is next of it: what was posted in vain before what never was. Returns its end, `limit` bytes on at most.
std::uint64_t Outbox::begin_data(TransferImpl& t, std::uint64_t limit, Built& built) {
  built.again = t.has_again();
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

/// Gathers what follows the cursor, where there is a byte, into one request: up to `limit` bytes of adjacent remote
/// memory, in `most` segments.
std::uint64_t Outbox::take_segments(const Way& way, const TransferImpl& t, Cursor& cursor, std::uint64_t limit,
                                    std::size_t most, bool copies, WorkRequest& request) {
  const std::span<const Op> ops = t.list->ops;
  const Op* op = ops.data() + cursor.op;
  std::uint64_t at = cursor.offset;
  for (; op->length == at; at = 0) ++op;  // empty pieces
  const Op& first = *op;
  const RemoteRegionImpl::Key key = first.remote->key(way.peer_transport);
  const std::uint64_t remote_begin = first.offset + at;
  LocalSegment* const segments = segments_ + segments_used_;
  LocalSegment* segment = segments;
  std::uint64_t bytes = 0;
  do {
    const std::uint64_t length = std::min(op->length - at, limit - bytes);
    if (length != 0) {
      // By message the bytes are copied, and need no key. Else the first of them has one.
      const std::optional<std::uint64_t> local = copies ? 0 : local_key(way, *op->range);
      if (!local) break;
      *segment++ = {op->data + at, length, *local};
    }
    bytes += length;
    at += length;
    if (at != op->length) break;
    ++op;
    at = 0;
  } while (op != ops.data() + ops.size() && segment != segments + most && bytes < limit && op->remote == first.remote &&
           op->offset == remote_begin + bytes && (op->length == 0 || !bounces(way, *op)));
  cursor = {static_cast<std::size_t>(op - ops.data()), at};
  const auto used = static_cast<std::size_t>(segment - segments);
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

bool Outbox::build_data(const Way& way, std::size_t most) {
  TransferImpl* next = way.rail == 0 ? next_with_data(way) : next_to_spread(way);
  if (next == nullptr) return false;
  TransferImpl& t = *next;
  const bool spread = is_spread(way, t);
  if (spread && share_left_ == 0) return false;
  if (segments_used_ + 2 > kSegments) return false;
  if (goes_by_message(way, next_op(t))) return build_staged(way, t);
  if (spread || !build_alone(way, t, most)) build_request(way, t, spread ? way.stripe : chunk_bytes_);
  return true;
}

std::span<const WorkRequest> Outbox::build_lone(const Way& way, TransferImpl& t, std::uint64_t id) {
  if (has_backlog() || !make_room(t)) return {};
  if (t.list == nullptr) {
    if (!t.has_message || !build_lone_message(way, t)) return {};
    requests_[0].id = id;
    count_ = 1;
    return {requests_, 1};
  }
  if (t.list->ops.size() != 1) return {};
  const Op& op = t.list->ops.front();
  const RemoteRegionImpl::Key key = op.remote->key(way.peer_transport);
  const bool whole = op.length != 0 && op.length <= chunk_bytes_;
  if (!whole || way.staged || op.remote->is_gone() || key.key == 0) return {};
  std::uint64_t local = 0;
  if (!way.has_local_key(*op.range, local) || (t.has_message && !may_carry_notification(way, t))) return {};
  segments_[0] = {op.data, op.length, local};
  WorkRequest& request = requests_[count_ = 0];
  request.id = id;
  request.kind = t.list->kind;
  request.local = {segments_, 1};
  request.remote_address = key.address + op.offset;
  request.remote_key = key.key;
  request.notify.reset();
  Built& built = built_[0];
  built.request = {one_sided_use(t), way.rail, &t, 0, op.length, 0};
  built.cursor = {};
  built.again = false;
  built.leaves_queue = true;
  t.posted_bytes = op.length;
  t.cursor.op = 1;
  if (t.has_message) carry_notification(t);
  count_ = 1;
  return {requests_, 1};
}

/// Its next pieces, as far as each is a request as it is and all are between the same memories: so little is looked at
/// for each of what is small. False: the next one is to be cut, or gathered with what follows it.
bool Outbox::build_alone(const Way& way, TransferImpl& t, std::size_t most) {
  if (t.has_again() || t.cursor.offset != 0) return false;
  const std::span<const Op> ops = t.list->ops;
  const auto stands_alone = [&](std::size_t i) {
    const Op& op = ops[i];
    if (op.length == 0 || op.length > chunk_bytes_) return false;
    return i + 1 == ops.size() || ops[i + 1].remote != op.remote || ops[i + 1].offset != op.offset + op.length;
  };
  std::size_t i = t.cursor.op;
  if (!stands_alone(i)) return false;
  const Op& first = ops[i];
  const RemoteRegionImpl::Key key = first.remote->key(way.peer_transport);
  const std::uint64_t local = local_key(way, *first.range).value_or(0);
  for (;;) {
    const Op& op = ops[i];
    LocalSegment& segment = segments_[segments_used_++];
    segment = {op.data, op.length, local};
    requests_[count_] = {0, t.list->kind, {&segment, 1}, key.address + op.offset, key.key};
    built_[count_] = {{one_sided_use(t), way.rail, &t, t.posted_bytes, op.length, 0}, t.cursor, false, false};
    t.posted_bytes += op.length;
    t.cursor.op = ++i;
    share_left_ -= std::min(share_left_, op.length);
    if (t.posted_bytes == t.list->bytes) break;
    if (count_ + 1 == most || segments_used_ == kSegments || !stands_alone(i) || ops[i].remote != first.remote ||
        ops[i].range != first.range)
      return true;
    ++count_;
  }
  leave_data_queue(way, t);
  if (!t.has_message && message_queue_.empty() && outcomes_.empty()) build_alike(way, t.list->kind, first, most, local);
  return true;
}

/// The next transfers that are one such piece each, between the memories of `like`, whose key here is `local`: they go
/// by the million, and need no second look.
void Outbox::build_alike(const Way& way, OpKind kind, const Op& like, std::size_t most, std::uint64_t local) {
  const RemoteRegionImpl::Key key = like.remote->key(way.peer_transport);
  while (count_ + 1 < most && segments_used_ != kSegments) {
    TransferImpl* const next = data_queue_.front();
    if (next == nullptr || next->failure != Code::kOk || next->was_lost || next->has_message) return;
    const OpList& list = *next->list;
    if (next->posted_bytes != 0 || list.ops.size() != 1 || list.kind != kind) return;
    const Op& op = list.ops.front();
    const bool alike = op.remote == like.remote && op.range == like.range && op.length != 0 &&
                       op.length <= chunk_bytes_ && !is_spread(way, *next);
    if (!alike) return;
    ++count_;
    LocalSegment& segment = segments_[segments_used_++];
    segment = {op.data, op.length, local};
    requests_[count_] = {0, list.kind, {&segment, 1}, key.address + op.offset, key.key};
    built_[count_] = {{one_sided_use(*next), way.rail, next, 0, op.length, 0}, {}, false, true};
    next->posted_bytes = op.length;
    next->cursor.op = 1;
    share_left_ -= std::min(share_left_, op.length);
    next->in_data.unlink();
  }
}

/// The next part of it, of at most `limit` bytes, which is not carried by message.
void Outbox::build_request(const Way& way, TransferImpl& t, std::uint64_t limit) {
  Built& built = built_[count_];
  built = {{one_sided_use(t), way.rail, &t, 0, 0, 0}, {}, false, false};
  WorkRequest& request = requests_[count_];
  request.kind = t.list->kind;
  request.notify.reset();
  limit = begin_data(t, limit, built);
  Cursor cursor = built.cursor;
  const std::size_t room = std::min<std::size_t>(way.can->max_segments, kSegments - segments_used_);
  const std::uint64_t bytes = take_segments(way, t, cursor, limit, room, false, request);
  end_data(t, bytes, cursor, built);
  share_left_ -= std::min(share_left_, bytes);
  if (built.leaves_queue) leave_data_queue(way, t);
}

/// The last request of its data has been built.
void Outbox::leave_data_queue(const Way& way, TransferImpl& t) {
  Built& built = built_[count_];
  built.leaves_queue = true;
  t.in_data.unlink();
  if (way.rail == 0 && t.comes_before_next() && may_carry_notification(way, t)) carry_notification(t);
}

/// By the request that is being built.
void Outbox::carry_notification(TransferImpl& t) noexcept {
  Built& built = built_[count_];
  requests_[count_].notify = static_cast<std::uint32_t>(t.value);
  built.request.use = Use::kNotifyingWrite;
  built.request.sequence = window_.take(0);
  t.message_all_posted = true;
  t.in_messages.unlink();
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
  segments[0] = {headers_[count_], kPathHeaderBytes, kOwnBytes};
  const std::size_t used = read ? 1 : 1 + data.local.size();
  if (read) segments_used_ -= data.local.size();
  requests_[count_] = {0, OpKind::kMessage, {segments, used}, 0, 0};
  if (built.leaves_queue) t.in_data.unlink();
  return true;
}

}  // namespace fairlead::datapath
