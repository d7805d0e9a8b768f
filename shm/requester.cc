#include "shm/requester.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/guarded.h"
#include "shm/pieces.h"
#include "transport/message_bytes.h"

namespace fairlead::shm {

using datapath::OpKind;
using datapath::WorkRequest;

Slot Requester::message_slot(const Work& work) noexcept {
  return {.kind = SlotKind::kMessage, .bytes = static_cast<std::uint16_t>(work.length), .word = work.known};
}

void Requester::start(Requests* requests, Responses* responses, const Side* theirs, Side* ours, bool pulls) noexcept {
  out_ = {requests, &theirs->answered.requests};
  in_ = {responses, &ours->heard.responses};
  theirs_ = theirs;
  pulls_ = pulls;
  stopped_ = false;
  left_ = Requests::kData;
}

// ---- taking work ---------------------------------------------------------------------------------------------------

std::size_t Requester::post(std::span<const WorkRequest> work) noexcept {
  std::size_t taken = 0;
  for (const WorkRequest& each : work) {
    if (stopped_ || end_ - first_ == kDepth || (end_ - first_ == work_.size() && !grow())) break;
    if (!(each.kind == OpKind::kMessage ? post_message(each) : post_other(each))) break;
    ++taken;
  }
  send_left();
  return taken;
}

/// Most peers are idle most of the time.
bool Requester::grow() noexcept {
  try {
    std::vector<Work> larger(work_.empty() ? kFirstWork : 2 * work_.size());
    std::vector<Segments> beside(larger.size());
    for (std::uint64_t number = first_; number != end_; ++number) {
      const std::size_t place = number & (larger.size() - 1);
      larger[place] = at(number);
      std::ranges::copy(segments_of(at(number)), beside[place].begin());
    }
    work_ = std::move(larger);
    segments_ = std::move(beside);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool Requester::post_message(const WorkRequest& work) noexcept {
  std::uint64_t length = 0;
  bool fits = true;
  for (const auto& segment : work.local) fits &= !__builtin_add_overflow(length, segment.length, &length);
  if (!fits || length > kMaxPiece) return post_other(work);
  send_left();
  Work& mine = at(end_);
  mine = {.id = work.id, .length = length, .known = reported_refusals_, .kind = OpKind::kMessage};
  Slot slot = message_slot(mine);
  const bool at_once = next_ == end_ && out_.has_room(slot.fits_inside() ? 0 : slot.bytes);
  if (left_ == 0 || (!at_once && length > kMostStored)) return false;
  std::byte* to = !at_once             ? store_.add(length, mine.source)
                  : slot.fits_inside() ? slot.inside()
                                       : out_.place(slot.bytes);
  if (to == nullptr) return false;
  datapath::copy_message(to, work.local);
  ++end_;
  left_ -= std::min<std::size_t>(left_, length);
  if (!at_once) return true;
  push(slot);
  next_ = end_;
  sent_bytes_ += length;
  return true;
}

/// What no peer could serve becomes an empty write with a verdict of our own, so that it is reported in its turn.
bool Requester::post_other(const WorkRequest& work) noexcept {
  std::uint64_t length = 0;
  bool legal = work.local.size() <= kMaxSegments && work.kind != OpKind::kMessage;
  for (const auto& segment : work.local) legal &= !__builtin_add_overflow(length, segment.length, &length);
  legal &= length <= kMaxLength;
  Work& mine = at(end_);
  mine = {.id = work.id, .known = reported_refusals_};
  if (legal) {
    mine.kind = work.kind;
    mine.length = length;
    mine.remote_address = work.remote_address;
    mine.remote_key = work.remote_key;
    mine.named = is_named(work, length);
    mine.notifies = work.kind == OpKind::kWrite && work.notify.has_value();
    mine.value = work.notify.value_or(0);
    mine.segments = static_cast<std::uint8_t>(work.local.size());
    std::ranges::transform(work.local, segments_of(mine).begin(),
                           [](const auto& each) { return iovec{each.data, each.length}; });
  } else {
    mine.code = Code::kInvalidArgument;
  }
  ++end_;
  if (mine.length > kMaxPiece || mine.kind == OpKind::kRead) long_until_ = end_;
  return true;
}

// ---- sending -------------------------------------------------------------------------------------------------------

/// The peer copies it, from where it lies. Asked once a request: the peer may change its answer.
bool Requester::is_named(const WorkRequest& work, std::uint64_t length) noexcept {
  if (work.kind != OpKind::kWrite || length <= kThroughRingOfArena || !given_.settle()) return false;
  const auto is_alone = [](const auto& segment) { return segment.key == kThroughRingsAlone; };
  if (std::ranges::any_of(work.local, is_alone)) return false;
  const auto is_mapped = [this](const auto& segment) { return given_.reaches(segment.key); };
  if (std::ranges::all_of(work.local, is_mapped)) return true;
  return length > kThroughRing && theirs_->state.pulls.load(std::memory_order_relaxed) == 1;
}

/// Of the ring of data, for its next slot.
std::uint32_t Requester::room_for(const Work& work) const noexcept {
  if (work.kind == OpKind::kRead) return 0;
  if (work.kind == OpKind::kMessage) {
    return work.length <= kMessageInSlot ? 0 : static_cast<std::uint32_t>(work.length);
  }
  if (work.named) {
    return work.segments == 1 ? 0 : work.segments * static_cast<std::uint32_t>(sizeof(SourceSegment));
  }
  const std::uint64_t left = std::min<std::uint64_t>(work.length - work.done, kMaxPiece);
  return left <= (work.notifies ? kPayloadBesideValue : kPayloadInSlot) ? 0 : static_cast<std::uint32_t>(left);
}

/// The last slot of its write.
void Requester::add_notification(Slot& slot, const Work& work) noexcept {
  slot.word = work.known;
  slot.notify(work.value);
}

void Requester::send_on() noexcept {
  while (!stopped_ && !pulled_.empty() && out_.has_room(0)) {
    push({.kind = SlotKind::kPulled, .word = pulled_.front()});
    pulled_.pop();
  }
  while (!stopped_ && next_ != end_ && out_.has_room(room_for(at(next_)))) {
    Work& work = at(next_);
    if (work.kind == OpKind::kRead) {
      push({.kind = SlotKind::kRead, .key = work.remote_key, .address = work.remote_address, .length = work.length});
      ++next_;
    } else if (work.kind == OpKind::kMessage) {
      send_stored(work);
    } else if (work.named) {
      send_from(work);
    } else {
      send_piece(work);
    }
  }
}

void Requester::send_stored(const Work& work) noexcept {
  Slot slot = message_slot(work);
  std::byte* const to = slot.fits_inside() ? slot.inside() : out_.place(slot.bytes);
  if (slot.bytes > 0) std::memcpy(to, store_.get(work.source, slot.bytes), slot.bytes);
  store_.drop(work.source);
  push(slot);
  sent_bytes_ += work.length;
  ++next_;
}

void Requester::send_from(Work& work) noexcept {
  Slot slot{.kind = SlotKind::kWriteFrom,
            .bytes = static_cast<std::uint16_t>(work.segments * sizeof(SourceSegment)),
            .key = work.remote_key,
            .address = work.remote_address,
            .length = work.length};
  if (work.notifies) add_notification(slot, work);
  std::byte* to = slot.fits_inside() ? slot.inside() : out_.place(slot.bytes);
  for (const iovec& each : segments_of(work)) {
    const SourceSegment source{reinterpret_cast<std::uint64_t>(each.iov_base), each.iov_len};
    std::memcpy(to, &source, sizeof source);
    to += sizeof source;
  }
  push(slot);
  sent_bytes_ += work.length;
  work.done = work.length;
  ++next_;
}

void Requester::send_piece(Work& work) noexcept {
  Slot slot{.kind = SlotKind::kWriteData,
            .bytes = static_cast<std::uint16_t>(std::min<std::uint64_t>(work.length - work.done, kMaxPiece)),
            .key = work.remote_key,
            .address = work.remote_address + work.done};
  if (work.notifies && slot.bytes == work.length - work.done) add_notification(slot, work);
  std::byte* to = slot.fits_inside() ? slot.inside() : out_.place(slot.bytes);
  const bool there =
      for_pieces(segments_of(work), work.done, slot.bytes, [&to](const std::byte* from, std::size_t bytes) {
        const bool copied = guarded_copy(to, from, bytes, from);
        to += bytes;
        return copied;
      });
  if (there) {
    memory_.copies().through_rings.add(slot.bytes);
    sent_bytes_ += slot.bytes;
    work.done += slot.bytes;
  } else {  // the rest will never be: the peer counts it as refused, so that no message runs ahead of it
    slot.bytes = 0;
    slot.flags = kLost;
    work.code = Code::kDataLoss;
    work.done = work.length;
  }
  if (work.done == work.length) {
    slot.flags |= kLast;
    ++next_;
  }
  push(slot);
}

bool Requester::take_news() noexcept {
  const bool pushed = std::exchange(pushed_, out_.pushed()) != out_.pushed();
  return std::exchange(made_room_, false) || pushed;
}

// ---- answers -------------------------------------------------------------------------------------------------------

Advance Requester::advance(Sink& sink, std::size_t turn) noexcept {
  Advance outcome;
  if (stopped_) return outcome;
  left_ = turn;
  if (first_ != end_) {
    // First, so that all that was answered before is in the ring when that is looked at.
    std::uint64_t ended = std::max(told_, first_);
    if (ended == first_) {
      ended = theirs_->answered.ended.load(std::memory_order_acquire);
      seen_ended_ = ended;
      (void)tell_tsan_of_acquire(true);
      // A request that is posted where a message is delivered says more than the line, which is written behind it.
      if (first_ != 0 && first_ == told_ && first_ - ended <= kDepth) ended = first_;
      const std::uint64_t progress = theirs_->answered.progress.load(std::memory_order_relaxed);
      outcome.happened |= std::exchange(seen_progress_, progress) != progress;
    }
    outcome.reason = take_answers(outcome);
    if (outcome.reason.empty()) outcome.reason = report(ended, sink, outcome);
    if (stopped_ || !outcome.reason.empty()) return outcome;
  }
  copy_reads(turn, outcome);
  if (outcome.gone || !outcome.reason.empty()) return outcome;
  const std::uint64_t before = out_.pushed();
  send_left();
  outcome.happened |= out_.pushed() != before;
  if (out_.lied()) outcome.reason = "that it has taken from the ring what never was there";
  return outcome;
}

void Requester::hear(std::uint32_t ended) noexcept {
  const auto ahead = static_cast<std::int32_t>(ended - static_cast<std::uint32_t>(first_));
  if (ahead > 0) told_ = first_ + static_cast<std::uint32_t>(ahead);
}

bool Requester::has_work() noexcept {
  if (stopped_) return false;
  if (!reads_.empty() || told_ > first_ || (first_ != end_ && in_.ready())) return true;
  const std::uint64_t ended = theirs_->answered.ended.load(std::memory_order_acquire);
  if (first_ != end_ && static_cast<std::int64_t>(ended - first_) > 0) return true;
  if (!pulled_.empty() && out_.has_room(0)) return true;
  return (next_ != end_ && out_.has_room(room_for(at(next_)))) || out_.lied();
}

/// As many as there can be at once, which are all that came before `ended` was read.
std::string_view Requester::take_answers(Advance& outcome) noexcept {
  std::string_view reason;
  for (std::size_t i = 0; i < Responses::kSlots && reason.empty() && in_.ready(); ++i) {
    const Slot slot = in_.next();
    reason = slot.bytes > kMaxPiece ? "an answer larger than a piece" : take(slot, outcome);
    in_.pop(slot);
    outcome.happened = true;
  }
  made_room_ |= in_.publish();
  return reason;
}

std::string_view Requester::take(const Slot& slot, Advance& outcome) noexcept {
  switch (slot.kind) {
    case SlotKind::kReadData:
      return take_data(slot, outcome);
    case SlotKind::kReadFrom:
      return take_source(slot);
    case SlotKind::kRefused:
      return take_refusal(slot);
    default:
      return "an answer of no known kind";
  }
}

Requester::Work* Requester::find(std::uint32_t number, OpKind kind) noexcept {
  const std::uint32_t ahead = number - static_cast<std::uint32_t>(first_);
  if (ahead >= next_ - first_ || at(first_ + ahead).kind != kind) return nullptr;
  return &at(first_ + ahead);
}

std::string_view Requester::take_data(const Slot& slot, Advance& outcome) noexcept {
  Work* const work = find(slot.word, OpKind::kRead);
  if (work == nullptr || work->copies) return "data of a read that was not asked for";
  if (slot.address != work->done || slot.bytes > work->length - work->done) return "data of a read out of sequence";
  Slot inside = slot;
  const std::byte* from = slot.fits_inside() ? inside.inside() : in_.payload(slot);
  const bool there = work->code != Code::kOk ||
                     for_pieces(segments_of(*work), work->done, slot.bytes, [&from](std::byte* to, std::size_t bytes) {
                       const bool copied = guarded_copy(to, from, bytes, to);
                       from += bytes;
                       return copied;
                     });
  if (!there) work->code = Code::kDataLoss;
  memory_.copies().through_rings.add(slot.bytes);
  work->done += slot.bytes;
  outcome.bytes += slot.bytes;
  return {};
}

std::string_view Requester::take_source(const Slot& slot) noexcept {
  if (!pulls_) return "a read to copy, which was not offered";
  if (reads_.full()) return "more reads to copy than the depth";
  Work* const work = find(slot.word, OpKind::kRead);
  if (work == nullptr || work->copies || work->done != 0) return "the place of a read that was not asked for";
  work->copies = true;
  work->source = slot.address;
  reads_.push(slot.word);
  return {};
}

std::string_view Requester::take_refusal(const Slot& slot) noexcept {
  const auto code = static_cast<Code>(slot.key);
  for (const OpKind kind : {OpKind::kWrite, OpKind::kRead, OpKind::kMessage}) {
    Work* const work = find(slot.word, kind);
    if (work == nullptr) continue;
    const bool turned_away =
        code == Code::kAborted && (kind == OpKind::kMessage || work->notifies) && work->known != seen_refusals_;
    const bool refused = (code == Code::kProtectionError && kind != OpKind::kMessage) ||
                         (code == Code::kDataLoss && kind == OpKind::kWrite);
    if (!(refused || turned_away) || work->refused) return "a refusal that its request cannot end with";
    if (kind == OpKind::kWrite && !turned_away) ++seen_refusals_;
    work->refused = true;
    if (work->code == Code::kOk) work->code = code;
    return {};
  }
  return "a refusal of nothing that was sent";
}

void Requester::copy_reads(std::size_t turn, Advance& outcome) noexcept {
  while (!reads_.empty() && turn > 0) {
    outcome.happened = true;
    Work* const work = find(reads_.front(), OpKind::kRead);
    if (work == nullptr) {  // refused meanwhile, and reported
      reads_.pop();
      continue;
    }
    outcome.gone = has_closed(*theirs_);
    if (outcome.gone) return;  // what lies there now is not what was to be read
    const PeerMemory::Copied copied = copy_piece(*work, turn, outcome);
    if (copied == PeerMemory::Copied::kNotOffered) outcome.reason = kMemoryNotOffered;
    outcome.gone = copied == PeerMemory::Copied::kPeerGone;
    if (outcome.gone || !outcome.reason.empty()) return;
    if (copied != PeerMemory::Copied::kAll) {
      work->code = copied == PeerMemory::Copied::kTargetGone ? Code::kDataLoss : Code::kProtectionError;
    }
    if (work->code == Code::kOk && work->done != work->length) continue;
    outcome.gone = work->code == Code::kOk && !memory_.stands();
    if (outcome.gone) return;
    pulled_.push(reads_.front());
    reads_.pop();
  }
}

/// Of the first of `reads_`, whose right is looked at before and afterwards: who withdraws it does not wait for us, and
/// may take back the arena that it lies in.
PeerMemory::Copied Requester::copy_piece(Work& work, std::size_t& turn, Advance& outcome) noexcept {
  const WithdrawnFlag& withdrawn = theirs_->withdrawn[reads_.front() % kDepth];
  if (withdrawn.load(std::memory_order_acquire) != 0) return PeerMemory::Copied::kSourceGone;
  auto copied = PeerMemory::Copied::kAll;
  const std::uint64_t most = std::min<std::uint64_t>({turn, kCopyAtOnce, work.length - work.done});
  for_pieces(segments_of(work), work.done, most, [&](std::byte* to, std::size_t bytes) {
    memory_.hear();
    copied = memory_.copy(to, work.source + work.done, bytes);
    if (copied != PeerMemory::Copied::kAll) return false;
    work.done += bytes;
    outcome.bytes += bytes;
    turn -= bytes;
    return true;
  });
  std::atomic_thread_fence(std::memory_order_seq_cst);  // behind what was copied
  const bool lost = copied != PeerMemory::Copied::kPeerGone && withdrawn.load(std::memory_order_acquire) != 0;
  return lost ? PeerMemory::Copied::kSourceGone : copied;
}

std::string_view Requester::report(std::uint64_t ended, Sink& sink, Advance& outcome) noexcept {
  if (ended - first_ > next_ - first_) return "the end of requests that were not sent";
  const auto lacks_data = [](const Work& work) {
    return work.kind == OpKind::kRead && work.code == Code::kOk && work.done != work.length;
  };
  while (!stopped_ && first_ != ended) {
    const Work& work = at(first_);
    if (lacks_data(work)) return "the end of a read without its data";
    if (work.kind == OpKind::kWrite && work.refused && work.code != Code::kAborted) ++reported_refusals_;
    datapath::Ended row{work.id, work.code};
    ++first_;  // before, so that the user finds room to post
    outcome.happened = true;
    for (; row.code == Code::kOk && first_ != ended; ++first_, ++row.count) {
      const Work& next = at(first_);
      if (next.code != Code::kOk || next.id != row.first + row.count || lacks_data(next)) break;
    }
    sink.on_completion(row);
  }
  return {};
}

std::pair<std::uint64_t, Code> Requester::take_first() noexcept {
  const Work& work = at(first_++);
  next_ = std::max(next_, first_);
  return {work.id, work.code != Code::kOk ? work.code : Code::kAborted};
}

}  // namespace fairlead::shm
