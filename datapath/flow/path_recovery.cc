// Paths: noticing the death of one, fencing it, and going on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/tally.h"
#include "datapath/flow/path_set.h"
#include "datapath/protocol/peer_text.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kGoodbyeGrace{3};
constexpr milliseconds kLeastFenceTime{10'000};
constexpr std::uint64_t kSlowestBytesPerSecond = 512 * 1024;  // an operation that is slower counts as stalled

/// Whether a cause speaks against the transport (another is then preferred) or only against one operation.
bool blames_transport(Code code) { return code != Code::kProtectionError && code != Code::kAborted; }

}  // namespace

void PathSet::on_down(PathSlot& slot, Code code, std::string_view reason) {
  saw(&slot, PathEvent::kDown);
  slot.down = true;
  slot.down_code = code;
  slot.down_reason = reason;
  slot.down_at = host_.now();
}

void PathSet::handle_down(const control::PathDown& down) {
  PathSlot* slot = slot_of(down.epoch);
  saw(slot, PathEvent::kPeerDown);
  if (slot == nullptr || slot->state >= PathState::kClosing || shut_) return;
  const Code code = code_from_wire(down.code);
  const std::string reason = fmt::format("the peer says: {}", clipped(down.reason));
  if (slot == beside_.get()) return give_up_beside(reason);
  if (down.stalled) {
    const bool may_leave = rules_.spare || trials_.has_other(candidate_, host_.now());
    return active_ && slot == in_use() && rules_.failover && may_leave ? died(code, reason) : void();
  }
  if (slot->state == PathState::kSettingUp || (slot->state == PathState::kProved && !active_)) {
    drop();
    if (active_) exclude_and_go_on(reason);
  } else if (active_) {
    died(code, reason);  // what the passive end gave up it, or we, may have used already
  }
}

/// A path that was in use, or may have been, is dead, at whichever end it was noticed.
void PathSet::died(Code code, const std::string& reason) {
  const OpenTransport& transport = host_.transports()[slot_->transport];
  const std::string& name = transport.offer.name;
  transport.endpoint->path_died();
  tally().path_deaths.add(code);
  leave(code, reason, false);
  if (active_ && blames_transport(code) && !rules_.failover) {
    return host_.fail({code == Code::kOk ? Code::kUnavailable : code,
                       fmt::format("{} to {} died: {}; failover is off", name, host_.who(), reason)});
  }
  log(LogLevel::kWarning, fmt::format("{} to {} died: {}; fencing it", name, host_.who(), reason));
  if (!active_) say_down(slot_epoch_, code, reason);
}

/// Closes the path, so that it can be fenced.
void PathSet::leave(Code code, const std::string& reason, bool for_better) {
  fence_code_ = code;
  fence_reason_ = reason;
  left_for_better_ = for_better;
  close();
  user_.path_lost();
}

/// Tells the peer that this path is given up.
void PathSet::say_down(std::uint64_t epoch, Code code, const std::string& reason) {
  user_.send_frame(
      control::PathDown{.epoch = epoch, .code = static_cast<std::uint32_t>(code), .reason = clipped(reason)});
}

void PathSet::handle_fence(const control::Fence& fence) {
  saw(PathEvent::kFence);
  if (active_ || fence.epoch != slot_epoch_) return;
  if (slot_ == nullptr) return send_fence_ack(fence.received);  // given up here before it was ever used
  fence_requested_ = true;
  fence_received_ = fence.received;
  if (state() == PathState::kClosing) return;
  if (fence_reason_.empty() || state() == PathState::kInUse) fence_reason_ = "the peer fenced it";
  left_for_better_ = beside_ != nullptr && beside_->state == PathState::kProved && beside_->peer_ready;
  log(left_for_better_ ? LogLevel::kInfo : LogLevel::kWarning,
      fmt::format("{} to {} was fenced by the peer", host_.transports()[slot_->transport].offer.name, host_.who()));
  close();
  user_.path_lost();
}

void PathSet::handle_fence_ack(const control::FenceAck& ack) {
  saw(PathEvent::kFenceAck);
  if (state() != PathState::kFenced || ack.epoch != slot_epoch_) return;
  if (blames_transport(fence_code_)) {
    const bool used = slot_->in_use_since != Clock::time_point{};
    const Clock::time_point now = host_.now();
    trials_.failed(candidate_, fence_reason_, now,
                   {used ? now - slot_->in_use_since : Clock::duration(), slot_->carried});
  }
  after_fence(ack.received);
  if (slot_ == nullptr && !shut_) begin_path();
}

void PathSet::send_fence_ack(std::uint64_t peer_received) {
  fence_requested_ = false;
  user_.send_frame(control::FenceAck{.epoch = slot_epoch_, .received = user_.received()});
  after_fence(peer_received);
}

/// Both ends are fenced and drained: settle what is known to be finished, keep the rest for the next path.
void PathSet::after_fence(std::uint64_t peer_received) {
  drop();
  std::string why;
  if (!user_.apply_received(peer_received, why)) {
    return host_.fail({Code::kDataLoss, fmt::format("{} {}", host_.who(), why)});
  }
  if (beside_ != nullptr) promote();
}

void PathSet::close() {
  if (state() >= PathState::kClosing || shut_) return;
  enter(*slot_, PathState::kClosing);
  slot_->path->close();
}

void PathSet::shut() {
  saw(PathEvent::kShut);
  if (slot_ != nullptr) close();
  if (beside_ != nullptr) beside_->path->close();
  shut_ = true;
}

/// What the path held and will not report comes back. Once, as soon as it is drained: what is said over the next path
/// may come before the last word about this one.
void PathSet::settle() noexcept {
  if (!std::exchange(slot_->settled, true)) user_.path_gone(slot_->in_flight);
}

void PathSet::drop() noexcept {
  if (slot_ == nullptr) return;
  close();
  settle();
  retire(std::move(slot_));
}

void PathSet::drop_all() {
  drop();
  if (beside_ != nullptr) retire(std::move(beside_));
}

void PathSet::retire(std::unique_ptr<PathSlot> slot) noexcept {
  slot->path->close();
  --host_.transports()[slot->transport].paths;
  dead_.push_back(std::move(slot));
}

// ---- time ----------------------------------------------------------------------------------------------------------

void PathSet::advance(Clock::time_point now) {
  if (shut_) return;
  for (PathSlot* slot : {slot_.get(), beside_.get()}) {
    if (slot != nullptr) advance_measuring(*slot, now);
  }
  if (beside_ != nullptr) advance_beside(now);
  if (shut_) return;
  switch (state()) {
    case PathState::kNone:
      if (begin_at_ && now >= *begin_at_) begin_path();
      return;
    case PathState::kFenced:
      return await_fence(now);
    case PathState::kSettingUp:
    case PathState::kProved:
      return advance_setup(*slot_, now);
    case PathState::kInUse:
      // A goodbye that was said before the path was closed is read first.
      if (slot_->down && now - slot_->down_at >= kGoodbyeGrace) died(slot_->down_code, slot_->down_reason);
      if (!slot_->down) look_for_better(now);
      if (shut_ || state() != PathState::kClosing) return;
      [[fallthrough]];
    case PathState::kClosing:
      break;
  }
  if (!slot_->path->drained() || user_.path_lingers()) return;
  saw(PathEvent::kDrained);
  settle();
  if (active_) {
    enter(*slot_, PathState::kFenced);
    user_.send_frame(control::Fence{.epoch = slot_->epoch, .received = user_.received()});
  } else if (fence_requested_) {
    send_fence_ack(fence_received_);
  } else {
    await_fence(now);
  }
}

/// What became of the work that was under way only the other end can say. One that lives, and withholds its word, would
/// keep transfers undone for ever, whatever their deadlines.
void PathSet::await_fence(Clock::time_point now) {
  const milliseconds patience = std::max(rules_.peer_timeout, kLeastFenceTime);
  if (slot_->fence_due == Clock::time_point{} || !host_.linked()) slot_->fence_due = now + patience;
  if (now < slot_->fence_due) return;
  host_.fail(
      {Code::kUnavailable,
       fmt::format("{} answers, but has not said within {} ms (peer_timeout) what it got over {}, which is closed",
                   host_.who(), patience.count(), host_.transports()[slot_->transport].offer.name)});
}

/// How long a path in use may stand still. Completions are all that can be seen, so a large operation on a slow network
/// needs its time.
milliseconds PathSet::patience() noexcept {
  return rules_.path_timeout + milliseconds(slot_->in_flight.oldest_bytes() * 1000 / kSlowestBytesPerSecond);
}

/// Whether a path that moves has kept a transfer's memory for longer than all that is under way may take: a peer can
/// answer everything but that.
bool PathSet::moves_without(Clock::time_point since, Clock::time_point now) const noexcept {
  const auto held = now - std::max(since, slot_->in_use_since);
  const milliseconds patience = std::max(rules_.peer_timeout, kLeastFenceTime);
  return held > patience && held > patience + milliseconds(slot_->in_flight.bytes() * 1000 / kSlowestBytesPerSecond);
}

void PathSet::take_back_memory(Clock::time_point since, Clock::time_point now,
                               std::optional<Clock::time_point> held_since) {
  if (in_use() == nullptr) return;
  // A path that had nothing to do has not stood still. But where the other end is to answer it holds nothing, either.
  const Clock::time_point still_since = slot_->in_flight.empty() ? slot_->last_moved : slot_->last_progress;
  const bool moves = slot_->moved || now - std::max(since, still_since) <= patience();
  if (moves && !(held_since && moves_without(*held_since, now))) return;
  died(Code::kAborted, fmt::format("a cancelled transfer's buffer had to be taken back from a path that {}",
                                   moves ? "moves, but did not end it within peer_timeout" : "does not move"));
}

/// Work waits and nothing moves: ask the peer over the control connection. If it answers and still nothing moves, it
/// is the path. If it does not answer, it is the peer, who may come back (peer_timeout).
void PathSet::check_progress(Clock::time_point now) {
  if (in_use() == nullptr) return;
  if (std::exchange(slot_->moved, false)) slot_->last_moved = slot_->last_progress = now;
  // What measures a path asks nothing of it that has to be done in time.
  if (slot_->in_flight.empty() || slot_->measurement) {
    slot_->last_progress = now;
    slot_->probed_at = {};
    return;
  }
  const milliseconds limit = patience();
  if (now - slot_->last_progress < limit) {
    slot_->probed_at = {};
    return;
  }
  // Where there is no other, RC retries and TCP's own timers watch.
  const bool may_leave = active_ ? rules_.spare || trials_.has_other(candidate_, now) : beside_allowed_;
  if (!rules_.failover || !may_leave) return;
  if (slot_->probed_at == Clock::time_point{}) {
    slot_->probed_at = now;
    slot_->probe_answered = false;
    user_.send_frame(control::Ping{.nonce = slot_->epoch});
  } else if (slot_->probe_answered && now - slot_->probed_at > limit) {
    const std::string reason =
        fmt::format("nothing moved for {} ms though the peer answers (path_timeout {} ms)",
                    std::chrono::duration_cast<milliseconds>(now - slot_->last_progress).count(), limit.count());
    if (active_) return died(Code::kUnavailable, reason);
    slot_->probed_at = {};  // and says so again
    user_.send_frame(control::PathDown{.epoch = slot_->epoch,
                                       .code = static_cast<std::uint32_t>(Code::kUnavailable),
                                       .reason = reason,
                                       .stalled = true});
  }
}

void PathSet::peer_answered() noexcept {
  if (slot_ != nullptr) slot_->probe_answered = true;
}

}  // namespace fairlead::datapath
