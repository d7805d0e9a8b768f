#include "shm/responder.h"

#include <algorithm>
#include <cstring>

#include "base/guarded.h"

namespace fairlead::shm {

Responder::Responder(PeerMemory& memory, GivenArenas& given, datapath::GrantReader& grants, PulledReads& reads,
                     datapath::DomainNumber domain)
    : memory_(memory),
      given_(given),
      grants_(grants),
      reads_(reads),
      domain_(domain),
      message_(std::make_unique_for_overwrite<std::byte[]>(kMaxPiece)) {}

void Responder::start(Requests* requests, Responses* responses, const Side* theirs, Side* ours, bool pulls) noexcept {
  in_ = {requests, &ours->answered.requests};
  out_ = {responses, &theirs->heard.responses};
  theirs_ = theirs;
  ours_ = ours;
  pulls_ = pulls;
  stopped_ = false;
}

void Responder::stop() noexcept {
  for (std::uint64_t which = ended_; !stopped_ && which != begun_; ++which) {
    if (std::exchange(reading_[which % kDepth].open, false)) reads_.close(ours_->withdrawn[which % kDepth]);
  }
  stopped_ = true;
}

Advance Responder::advance(Sink& sink, std::size_t turn) noexcept {
  Advance outcome;
  if (std::exchange(is_fresh_, false)) habit_.learn(said_ == ended_);
  const std::uint64_t before = ended_;
  for (std::size_t taken = 0; !stopped_ && outcome.reason.empty() && taken < kDepth;) {
    if (doing_ == Doing::kCopying) copy_on(turn, sink, outcome);
    if (stopped_) break;
    if (doing_ == Doing::kAnswering) answer_on(turn);
    // Each request makes one answer at once, at most.
    if (outcome.gone || doing_ != Doing::kNothing || turn == 0 || !in_.ready() || !out_.has_room(0)) break;
    if (has_closed(*theirs_)) {
      outcome.gone = true;
      break;
    }
    ++taken;
    outcome.happened = outcome.heard = true;
    const Slot slot = in_.next();
    outcome.ended = slot.ended;
    outcome.messages |= slot.kind == SlotKind::kMessage;
    turn -= std::min<std::size_t>(turn, slot.bytes);
    outcome.reason = slot.bytes > kMaxPiece ? "a request with more than a piece" : begin(slot, sink, outcome);
  }
  if (stopped_) return outcome;
  if (out_.lied()) outcome.reason = "that it has taken from the ring what never was there";
  is_fresh_ = ended_ != before;
  tell();
  return outcome;
}

bool Responder::has_work() noexcept {
  if (stopped_) return false;
  if (doing_ == Doing::kCopying || out_.lied() || told_ != ended_) return true;
  if (doing_ == Doing::kAnswering) return out_.has_room(kMaxPiece);
  return in_.ready() && out_.has_room(0);
}

/// What a request of ours has said need not be said again, and what one is about to say waits for it, until the next
/// advance(). Room in the ring is told of along with it, or when there is much.
void Responder::tell() noexcept {
  if (said_ == ended_) told_ = ended_;
  const bool waits = told_ == ended_ || (is_fresh_ && habit_.expects_answer());
  if (!waits || in_.owes_much()) publish();
}

/// After all answers that it stands for.
void Responder::publish() noexcept {
  news_ |= in_.publish();
  if (told_ == ended_) return;
  told_ = ended_;
  tell_tsan_of_release();
  ours_->answered.ended.store(ended_, std::memory_order_release);
  news_ = true;
}

/// Takes the slot out of the ring, too.
std::string_view Responder::begin(const Slot& slot, Sink& sink, Advance& outcome) noexcept {
  if (slot.kind == SlotKind::kPulled) {
    in_.pop(slot);
    return end_read(slot);
  }
  if (begun_ - ended_ == kDepth) return "more requests than the depth";
  if (write_open_ && slot.kind != SlotKind::kWriteData) return "a request within a write";
  if (const std::string_view reason = contradiction(slot); !reason.empty()) return reason;
  switch (slot.kind) {
    case SlotKind::kMessage:
      return begin_message(slot, sink);
    case SlotKind::kWriteData:
      return take_piece(slot, sink, outcome);
    case SlotKind::kWriteFrom:
      return begin_copy(slot);
    case SlotKind::kRead:
      in_.pop(slot);
      return begin_read(slot);
    default:
      return "a request of no known kind";
  }
}

/// In what says what its sender knows of.
std::string_view Responder::contradiction(const Slot& slot) const noexcept {
  if (slot.kind != SlotKind::kMessage && !slot.notifies()) return {};
  if (static_cast<std::int32_t>(refused_ - slot.word) < 0) return "a message that knows of refusals that never were";
  if (slot.kind == SlotKind::kWriteData && (slot.flags & kLast) == 0) return "the notification of a write within it";
  return {};
}

std::string_view Responder::begin_message(const Slot& slot, Sink& sink) noexcept {
  Slot copy = slot;
  const std::byte* bytes = copy.inside();
  if (!slot.fits_inside()) {
    std::memcpy(message_.get(), in_.payload(slot), slot.bytes);
    bytes = message_.get();
  }
  in_.pop(slot);
  if (slot.word != refused_) {  // posted behind a write that was not placed
    end(Code::kAborted);
    return {};
  }
  end(Code::kOk);
  sink.on_message({bytes, slot.bytes});
  return {};
}

// ---- writes --------------------------------------------------------------------------------------------------------

std::string_view Responder::take_piece(const Slot& slot, Sink& sink, Advance& outcome) noexcept {
  if (!write_open_) verdict_ = Code::kOk;
  write_open_ = true;
  if ((slot.flags & kLost) != 0 && verdict_ == Code::kOk) verdict_ = Code::kDataLoss;
  if (slot.notifies() && slot.word != refused_ && verdict_ == Code::kOk) verdict_ = Code::kAborted;
  if (verdict_ == Code::kOk && slot.bytes > 0) {  // of none no key is looked at, as RDMA has it (IBTA C9-88)
    Slot inside = slot;
    const std::byte* from = slot.fits_inside() ? inside.inside() : in_.payload(slot);
    const datapath::GrantReader::Section section(grants_);
    const auto to = grants_.find(domain_, slot.key, slot.address, slot.bytes, Access::kRemoteWrite);
    if (!to || !guarded_copy(to->data(), from, slot.bytes, to->data())) verdict_ = Code::kProtectionError;
    memory_.copies().through_rings.add(slot.bytes);
    outcome.bytes += slot.bytes;
  }
  in_.pop(slot);
  if ((slot.flags & kLast) == 0) return {};
  write_open_ = false;
  end_write(slot, verdict_, sink);
  return {};
}

std::string_view Responder::begin_copy(const Slot& slot) noexcept {
  if (!pulls_) return "a write to copy, which was not offered";
  const std::size_t count = slot.bytes / sizeof(SourceSegment);
  if (count > kMaxSegments || slot.bytes % sizeof(SourceSegment) != 0 || slot.length > kMaxLength) {
    return "a write from nowhere";
  }
  Slot inside = slot;
  std::memcpy(sources_.data(), slot.fits_inside() ? inside.inside() : in_.payload(slot), slot.bytes);
  in_.pop(slot);
  std::uint64_t length = 0;
  bool fits = true;
  for (std::size_t i = 0; i < count; ++i) {
    fits &= !__builtin_add_overflow(length, sources_[i].length, &length);
  }
  if (!fits || length != slot.length) return "a write from more or less than it is long";
  if (slot.notifies() && slot.word != refused_) {
    end(Code::kAborted);
    return {};
  }
  request_ = slot;
  done_ = 0;
  doing_ = Doing::kCopying;
  return {};
}

void Responder::copy_on(std::size_t& turn, Sink& sink, Advance& outcome) noexcept {
  Code code = Code::kOk;
  while (turn > 0 && code == Code::kOk && done_ < request_.length) {
    std::size_t copied = 0;
    outcome.gone = has_closed(*theirs_);
    memory_.hear();
    if (!outcome.gone) code = copy_piece(std::min(turn, kCopyAtOnce), copied, outcome);
    if (outcome.gone) return;
    done_ += copied;
    turn -= copied;
    outcome.bytes += copied;
    outcome.happened = true;
  }
  if (code == Code::kOk && peer_let_go()) {
    outcome.gone = true;
    return;
  }
  if (code == Code::kOk && done_ < request_.length) {
    ours_->answered.progress.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  doing_ = Doing::kNothing;
  end_write(request_, code, sink);
}

/// Of the source segment in which `done_` lies.
Code Responder::copy_piece(std::size_t most, std::size_t& copied, Advance& outcome) noexcept {
  std::uint64_t before = 0;
  std::size_t index = 0;
  while (done_ - before >= sources_[index].length) before += sources_[index++].length;
  const SourceSegment& source = sources_[index];
  const std::size_t bytes = std::min<std::uint64_t>(most, source.length - (done_ - before));
  const datapath::GrantReader::Section section(grants_);
  const auto to =
      grants_.find(domain_, request_.key, request_.address + done_, request_.length - done_, Access::kRemoteWrite);
  if (!to) return Code::kProtectionError;
  switch (memory_.copy(to->data(), source.address + (done_ - before), bytes)) {
    case PeerMemory::Copied::kAll:
      copied = bytes;
      return Code::kOk;
    case PeerMemory::Copied::kSourceGone:
      return Code::kDataLoss;
    case PeerMemory::Copied::kTargetGone:
      return Code::kProtectionError;
    case PeerMemory::Copied::kNotOffered:
      outcome.reason = kMemoryNotOffered;
      [[fallthrough]];
    case PeerMemory::Copied::kPeerGone:
      outcome.gone = true;
      break;
  }
  return Code::kUnavailable;
}

/// What was read of its memory does not count then.
bool Responder::peer_let_go() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // behind what was copied
  return has_closed(*theirs_) || !memory_.stands();
}

// ---- reads ---------------------------------------------------------------------------------------------------------

std::string_view Responder::begin_read(const Slot& slot) noexcept {
  if (slot.length > kMaxLength) return "a read of more than there is";
  const datapath::GrantReader::Section section(grants_);
  const auto from = grants_.find(domain_, slot.key, slot.address, slot.length, Access::kRemoteRead);
  if (slot.length == 0 || !from) {
    end(slot.length == 0 ? Code::kOk : Code::kProtectionError);
    return {};
  }
  if (is_pulled(slot.key, *from)) {
    WithdrawnFlag& withdrawn = ours_->withdrawn[begun_ % kDepth];
    withdrawn.store(0, std::memory_order_relaxed);
    reads_.open(slot.key, withdrawn);
    reading_[begun_ % kDepth] = {.open = true, .key = slot.key, .address = slot.address, .length = slot.length};
    out_.push(
        {.kind = SlotKind::kReadFrom, .word = number(), .address = reinterpret_cast<std::uint64_t>(from->data())});
    news_ = true;
    ++begun_;
    return {};
  }
  request_ = slot;
  done_ = 0;
  doing_ = Doing::kAnswering;
  return {};
}

/// Whether the peer copies it by itself.
bool Responder::is_pulled(std::uint64_t key, std::span<const std::byte> bytes) noexcept {
  if (bytes.size() <= kThroughRingOfArena || !given_.settle()) return false;
  if (given_.reaches(bytes)) return true;
  return bytes.size() > kThroughRing && theirs_->state.pulls.load(std::memory_order_relaxed) == 1 &&
         !grants_.is_by_cpu_only(key);
}

std::string_view Responder::end_read(const Slot& slot) noexcept {
  const std::uint32_t ahead = slot.word - static_cast<std::uint32_t>(ended_);
  Reading& read = reading_[(ended_ + ahead) % kDepth];
  if (ahead >= begun_ - ended_ || !read.open) return "the end of a read that was not asked for";
  read.open = false;
  reads_.close(ours_->withdrawn[slot.word % kDepth]);
  bool granted = false;
  {
    const datapath::GrantReader::Section section(grants_);
    granted = grants_.find(domain_, read.key, read.address, read.length, Access::kRemoteRead).has_value();
  }
  if (!granted) refuse(slot.word, Code::kProtectionError);
  mark_ended(ended_ + ahead);
  return {};
}

void Responder::answer_on(std::size_t& turn) noexcept {
  Code code = Code::kOk;
  while (turn > 0 && code == Code::kOk && done_ < request_.length) {
    Slot slot{.kind = SlotKind::kReadData,
              .bytes = static_cast<std::uint16_t>(std::min<std::uint64_t>(request_.length - done_, kMaxPiece)),
              .word = number(),
              .address = done_};
    if (!out_.has_room(slot.fits_inside() ? 0 : slot.bytes)) return;
    std::byte* const to = slot.fits_inside() ? slot.inside() : out_.place(slot.bytes);
    const datapath::GrantReader::Section section(grants_);
    const auto from = grants_.find(domain_, request_.key, request_.address + done_, slot.bytes, Access::kRemoteRead);
    if (!from || !guarded_copy(to, from->data(), slot.bytes, from->data())) {
      code = Code::kProtectionError;
      break;
    }
    out_.push(slot);
    news_ = true;
    memory_.copies().through_rings.add(slot.bytes);
    done_ += slot.bytes;
    turn -= std::min<std::size_t>(turn, slot.bytes);
  }
  if (code == Code::kOk && done_ < request_.length) return;
  if (code != Code::kOk && !out_.has_room(0)) return;  // the next turn finds the same
  doing_ = Doing::kNothing;
  end(code);
}

// ---- ends ----------------------------------------------------------------------------------------------------------

void Responder::end(Code code) noexcept {
  if (code != Code::kOk) refuse(number(), code);
  mark_ended(begun_++);
}

void Responder::end_write(const Slot& last, Code code, Sink& sink) noexcept {
  if (code != Code::kOk && code != Code::kAborted) ++refused_;
  end(code);
  if (code == Code::kOk && last.notifies()) sink.on_notification(last.value());
}

void Responder::refuse(std::uint32_t which, Code code) noexcept {
  out_.push({.kind = SlotKind::kRefused, .word = which, .key = static_cast<std::uint64_t>(code)});
  news_ = true;
}

void Responder::mark_ended(std::uint64_t which) noexcept {
  done_early_[which % kDepth] = true;
  while (ended_ != begun_ && done_early_[ended_ % kDepth]) done_early_[ended_++ % kDepth] = false;
}

}  // namespace fairlead::shm
