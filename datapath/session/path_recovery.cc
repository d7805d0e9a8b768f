// Paths: noticing the death of one, fencing it, and going on.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "datapath/session/path_set.h"
#include "datapath/session/peer_text.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kGoodbyeGrace{3};
constexpr std::uint64_t kSlowestBytesPerSecond = 512 * 1024;  // an operation that is slower counts as stalled

/// Whether a cause speaks against the transport (another is then preferred) or only against one operation.
bool blames_transport(Code code) { return code != Code::kProtectionError && code != Code::kAborted; }

}  // namespace

void PathSet::on_down(Code code, std::string_view reason) {
  saw(PathEvent::kDown);
  slot_->down = true;
  slot_->down_code = code;
  slot_->down_reason = reason;
  slot_->down_at = user_.now();
}

void PathSet::handle_down(const control::PathDown& down) {
  saw(PathEvent::kPeerDown);
  if (open() == nullptr || slot_->epoch != down.epoch) return;
  const Code code = code_from_wire(down.code);
  const std::string reason = fmt::format("the peer says: {}", clipped(down.reason));
  if (state_ == PathState::kSettingUp || (state_ == PathState::kProved && !active_)) {
    drop();
    if (active_) exclude_and_go_on(reason);
  } else if (active_) {
    died(code, reason);  // what the passive end gave up it, or we, may have used already
  }
}

/// A path that was in use, or may have been, is dead, at whichever end it was noticed.
void PathSet::died(Code code, const std::string& reason) {
  const std::string name = user_.transports()[slot_->transport].offer.name;
  fence_code_ = code;
  fence_reason_ = reason;
  close();
  user_.path_lost();
  if (active_ && blames_transport(code) && !rules_.failover) {
    return user_.fail({code == Code::kOk ? Code::kUnavailable : code,
                       fmt::format("{} to {} died: {}; failover is off", name, user_.who(), reason)});
  }
  log(LogLevel::kWarning, fmt::format("{} to {} died: {}; fencing it", name, user_.who(), reason));
  if (!active_) say_down(code, reason);
}

/// Tells the peer that this path is given up.
void PathSet::say_down(Code code, const std::string& reason) {
  user_.send_frame(
      control::PathDown{.epoch = epoch_, .code = static_cast<std::uint32_t>(code), .reason = clipped(reason)});
}

void PathSet::handle_fence(const control::Fence& fence) {
  saw(PathEvent::kFence);
  if (active_ || fence.epoch != epoch_) return;
  if (state_ == PathState::kNone) return send_fence_ack(fence.received);  // given up here before it was ever used
  fence_requested_ = true;
  fence_received_ = fence.received;
  if (state_ == PathState::kClosing) return;
  if (fence_reason_.empty() || state_ == PathState::kInUse) fence_reason_ = "the peer fenced it";
  log(LogLevel::kWarning,
      fmt::format("{} to {} was fenced by the peer", user_.transports()[slot_->transport].offer.name, user_.who()));
  close();
  user_.path_lost();
}

void PathSet::handle_fence_ack(const control::FenceAck& ack) {
  saw(PathEvent::kFenceAck);
  if (state_ != PathState::kFenced || ack.epoch != epoch_) return;
  if (blames_transport(fence_code_)) {
    const bool used = slot_->in_use_since != Clock::time_point{};
    const Clock::time_point now = user_.now();
    trials_.failed(candidate_, fence_reason_, now, used ? now - slot_->in_use_since : Clock::duration());
  }
  after_fence(ack.received);
  if (!shut_) begin_path();
}

void PathSet::send_fence_ack(std::uint64_t peer_received) {
  fence_requested_ = false;
  user_.send_frame(control::FenceAck{.epoch = epoch_, .received = user_.received()});
  after_fence(peer_received);
}

/// Both ends are fenced and drained: settle what is known to be finished, keep the rest for the next path.
void PathSet::after_fence(std::uint64_t peer_received) {
  drop();
  std::string why;
  if (!user_.apply_received(peer_received, why)) {
    user_.fail({Code::kDataLoss, fmt::format("{} {}", user_.who(), why)});
  }
}

void PathSet::close() {
  if (state_ >= PathState::kClosing || shut_) return;
  enter(PathState::kClosing);
  slot_->path->close();
}

void PathSet::shut() {
  saw(PathEvent::kShut);
  if (slot_ != nullptr) close();
  shut_ = true;
}

void PathSet::drop() {
  if (slot_ == nullptr) return;
  close();
  --user_.transports()[slot_->transport].paths;
  dead_ = std::move(slot_);
  enter(PathState::kNone);
  user_.path_gone(dead_->in_flight);
}

// ---- time ----------------------------------------------------------------------------------------------------------

void PathSet::advance(Clock::time_point now) {
  if (shut_) return;
  switch (state_) {
    case PathState::kNone:
      if (begin_at_ && now >= *begin_at_) begin_path();
      return;
    case PathState::kFenced:
      return;
    case PathState::kSettingUp:
    case PathState::kProved:
      return advance_setup(now);
    case PathState::kInUse:
      // A goodbye that was said before the path was closed is read first.
      if (slot_->down && now - slot_->down_at >= kGoodbyeGrace) died(slot_->down_code, slot_->down_reason);
      if (shut_ || state_ != PathState::kClosing) return;
      [[fallthrough]];
    case PathState::kClosing:
      break;
  }
  if (!slot_->path->drained()) return;
  saw(PathEvent::kDrained);
  if (active_) {
    enter(PathState::kFenced);
    user_.send_frame(control::Fence{.epoch = slot_->epoch, .received = user_.received()});
  } else if (fence_requested_) {
    send_fence_ack(fence_received_);
  }
}

/// How long a path in use may stand still. Completions are all that can be seen, so a large operation on a slow network
/// needs its time.
milliseconds PathSet::patience() noexcept {
  return rules_.path_timeout + milliseconds(slot_->in_flight.oldest_bytes() * 1000 / kSlowestBytesPerSecond);
}

void PathSet::take_back_memory(Clock::time_point since, Clock::time_point now) {
  if (in_use() == nullptr || slot_->moved || now - std::max(since, slot_->last_moved) <= patience()) return;
  died(Code::kAborted, "a cancelled transfer's buffer had to be taken back from a path that does not move");
}

/// Work waits and nothing moves: ask the peer over the control connection. If it answers and still nothing moves, it
/// is the path. If it does not answer, it is the peer, who may come back (peer_timeout).
void PathSet::check_progress(Clock::time_point now) {
  if (in_use() == nullptr) return;
  if (std::exchange(slot_->moved, false)) slot_->last_moved = slot_->last_progress = now;
  if (slot_->in_flight.empty()) {
    slot_->last_progress = now;
    slot_->probed_at = {};
    return;
  }
  const milliseconds limit = patience();
  if (now - slot_->last_progress < limit) {
    slot_->probed_at = {};
    return;
  }
  // The active end alone knows whether there is another path; RC retries and TCP's own timers watch for both.
  if (!active_ || !rules_.failover || !trials_.has_other(candidate_, now)) return;
  if (slot_->probed_at == Clock::time_point{}) {
    slot_->probed_at = now;
    slot_->probe_answered = false;
    user_.send_frame(control::Ping{.nonce = slot_->epoch});
  } else if (slot_->probe_answered && now - slot_->probed_at > limit) {
    died(Code::kUnavailable,
         fmt::format("nothing moved for {} ms though the peer answers (path_timeout {} ms)",
                     std::chrono::duration_cast<milliseconds>(now - slot_->last_progress).count(), limit.count()));
  }
}

void PathSet::peer_answered() noexcept {
  if (slot_ != nullptr) slot_->probe_answered = true;
}

}  // namespace fairlead::datapath
