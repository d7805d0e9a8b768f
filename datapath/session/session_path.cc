// Paths: setting one up, proving that it carries data, noticing its death, fencing it and recovering.
#include <fmt/format.h>

#include <algorithm>

#include "datapath/session/peer_text.h"
#include "datapath/session/session.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

using std::chrono::milliseconds;

namespace {

// A path that is not proved within this time is given up; writes that do not end in half of it are given up first, so
// that a device without one-sided operations is used in staged mode.
constexpr milliseconds kPathSetupTimeout{4000};
constexpr milliseconds kGoodbyeGrace{3};
constexpr std::uint64_t kSlowestBytesPerSecond = 512 * 1024;  // an operation that is slower counts as stalled
constexpr std::size_t kMaxDescription = 4096;

/// Whether a cause speaks against the transport (another is then preferred) or only against one operation.
bool blames_transport(Code code) { return code != Code::kProtectionError && code != Code::kAborted; }

}  // namespace

bool SessionImpl::open_slot(std::size_t transport, std::size_t peer_transport, std::uint64_t epoch, PathRole role,
                            Status& error) {
  OpenTransport& open = host_->transports()[transport];
  PathConfig config;
  config.role = role;
  config.peer_host = channel_->stream().peer_host();
  config.local_host = channel_->stream().local_host();
  config.user = this;
  Result<std::unique_ptr<Path>> path = open.transport->open_path(config);
  if (!path) {
    error = path.error();
    return false;
  }
  slot_ = std::make_unique<PathSlot>();
  slot_->path = std::move(*path);
  slot_->can = &open.transport->capabilities();
  slot_->transport = transport;
  slot_->peer_transport = peer_transport;
  slot_->epoch = epoch;
  slot_->opened_at = slot_->last_progress = host_->now();
  ++open.paths;
  return true;
}

// ---- active: choosing and offering ---------------------------------------------------------------------------------

void SessionImpl::begin_path() {
  while (true) {
    candidate_ = 0;
    while (candidate_ < candidates_.size() && !excluded_[candidate_].empty()) ++candidate_;
    if (candidate_ == candidates_.size()) {
      std::string tried;
      for (std::size_t c = 0; c < candidates_.size(); ++c) {
        tried += fmt::format("{}{}: {}", c == 0 ? "" : "; ", host_->transports()[candidates_[c].local].offer.name,
                             excluded_[c]);
      }
      return fail({Code::kUnavailable, fmt::format("no path to {}: {}", who(), tried)});
    }
    Status error;
    const Candidate& candidate = candidates_[candidate_];
    if (open_slot(candidate.local, candidate.remote, ++epoch_, PathRole::kActive, error)) break;
    excluded_[candidate_] = error.message();
    log(LogLevel::kWarning, fmt::format("{}: {}", host_->transports()[candidate.local].offer.name, error.message()));
  }
  phase_ = Phase::kPathing;
  control::Frame frame;
  control::PathOffer& offer = *frame.mutable_path_offer();
  offer.set_epoch(slot_->epoch);
  offer.set_active_transport(static_cast<std::uint32_t>(slot_->transport));
  offer.set_passive_transport(static_cast<std::uint32_t>(slot_->peer_transport));
  offer.set_description(slot_->path->local_description());
  const OpenTransport& open = host_->transports()[slot_->transport];
  offer.mutable_probe()->set_address(open.probe.remote_address);
  offer.mutable_probe()->set_key(open.probe.remote);
  send_frame(frame);
}

void SessionImpl::handle_path_answer(const control::PathAnswer& answer) {
  if (!active_ || slot_ == nullptr || slot_->epoch != answer.epoch() || slot_->closed) return;
  slot_->peer_probe = {answer.probe().address(), answer.probe().key()};
  Status connected = answer.description().size() <= kMaxDescription
                         ? slot_->path->connect(answer.description())
                         : Status(Code::kDataLoss, fmt::format("a path description of {} bytes (limit {})",
                                                               answer.description().size(), kMaxDescription));
  if (!connected.ok()) candidate_failed(connected.code(), connected.message());
}

/// The path in hand, never used yet, does not work: say so, and try the next best (active) or wait for it (passive).
void SessionImpl::candidate_failed(Code code, const std::string& reason) {
  control::Frame frame;
  frame.mutable_path_down()->set_epoch(slot_ != nullptr ? slot_->epoch : epoch_);
  frame.mutable_path_down()->set_code(static_cast<std::uint32_t>(code));
  frame.mutable_path_down()->set_reason(clipped(reason));
  send_frame(frame);
  drop_slot();
  if (!active_) return;
  excluded_[candidate_] = reason;
  log(LogLevel::kWarning, fmt::format("{} to {} does not work: {}",
                                      host_->transports()[candidates_[candidate_].local].offer.name, who(), reason));
  begin_path();
}

// ---- passive -------------------------------------------------------------------------------------------------------

void SessionImpl::handle_path_offer(const control::PathOffer& offer) {
  // We told the active end that the path died before it was proved there too: it will not fence what it never used.
  if (phase_ == Phase::kAwaitingFence && slot_ != nullptr && slot_->closed && !fence_requested_) {
    after_fence(outbox_.acknowledged());
  }
  if (active_ || offer.epoch() <= epoch_ || phase_ != Phase::kPathing || slot_ != nullptr) {
    return fail({Code::kDataLoss, fmt::format("{} offered a path (epoch {}) out of turn", who(), offer.epoch())});
  }
  epoch_ = offer.epoch();
  const std::size_t transport = offer.passive_transport();
  Status error;
  if (transport >= host_->transports().size() || offer.active_transport() >= peer_offers_.size() ||
      peer_offers_[offer.active_transport()].kind != host_->transports()[transport].offer.kind ||
      offer.description().size() > kMaxDescription) {
    return candidate_failed(Code::kInvalidArgument, "the offer names transports that do not match");
  }
  if (!open_slot(transport, offer.active_transport(), offer.epoch(), PathRole::kPassive, error)) {
    return candidate_failed(error.code(), error.message());
  }
  slot_->peer_probe = {offer.probe().address(), offer.probe().key()};
  if (Status connected = slot_->path->connect(offer.description()); !connected.ok()) {
    return candidate_failed(connected.code(), connected.message());
  }
  control::Frame frame;
  control::PathAnswer& answer = *frame.mutable_path_answer();
  answer.set_epoch(slot_->epoch);
  answer.set_description(slot_->path->local_description());
  const OpenTransport& open = host_->transports()[transport];
  answer.mutable_probe()->set_address(open.probe.remote_address);
  answer.mutable_probe()->set_key(open.probe.remote);
  send_frame(frame);
}

// ---- both: proving
// ---------------------------------------------------------------------------------------------------

void SessionImpl::on_path_ready(Path& path) {
  if (slot_ == nullptr || slot_->path.get() != &path || slot_->closed) return;
  slot_->connected = true;
  dirty_ = true;
}

/// A small WRITE and a message each way: only what has been seen to arrive is used.
void SessionImpl::prove_slot() {
  const OpenTransport& open = host_->transports()[slot_->transport];
  const LocalSegment source = host_->probe_source(slot_->transport);
  PathHeader header;
  PathMessage hello;
  hello.type = MessageType::kHello;
  hello.sequence = slot_->epoch;
  encode(hello, header);
  const LocalSegment message{header, kPathHeaderBytes, 0};
  const bool write = open.transport->capabilities().one_sided && slot_->peer_probe.key != 0;
  const WorkRequest requests[2] = {
      {kProbeId, OpKind::kWrite, {&source, 1}, slot_->peer_probe.address, slot_->peer_probe.key},
      {slot_->in_flight.next_id(), OpKind::kMessage, {&message, 1}, 0, 0}};
  if (!write) slot_->write_failed = true;
  const std::span<const WorkRequest> batch(requests + (write ? 0 : 1), write ? 2 : 1);
  const std::size_t taken = slot_->path->post(batch);
  if (taken == batch.size()) {
    slot_->hello_sent = true;
    slot_->in_flight.push({});
  } else if (taken != 0) {
    slot_->write_failed = true;  // the message did not fit behind it; the next round sends it alone
    slot_->peer_probe.key = 0;
  }
}

void SessionImpl::check_slot_proved() {
  PathSlot& slot = *slot_;
  if (!slot.hello_sent || !slot.hello_received || !(slot.write_proved || slot.write_failed)) return;
  if (!slot.ready_sent) {
    slot.ready_sent = true;
    control::Frame frame;
    frame.mutable_path_ready()->set_epoch(slot.epoch);
    frame.mutable_path_ready()->set_one_sided(slot.write_proved);
    send_frame(frame);
  }
  if (slot.peer_ready && !slot.usable) {
    slot.usable = true;
    slot.last_progress = host_->now();
    become_ready();
  }
}

void SessionImpl::handle_path_ready(const control::PathReady& ready) {
  if (slot_ == nullptr || slot_->epoch != ready.epoch() || slot_->closed) return;
  slot_->peer_ready = true;
  check_slot_proved();
}

// ---- death, fence, recovery ----------------------------------------------------------------------------------------

void SessionImpl::on_path_down(Path& path, Code code, std::string_view reason) {
  if (slot_ == nullptr || slot_->path.get() != &path) return;
  slot_->down = true;
  slot_->down_code = code;
  slot_->down_reason = reason;
  slot_->down_at = host_->now();
  dirty_ = true;
}

void SessionImpl::handle_path_down(const control::PathDown& down) {
  if (slot_ == nullptr || slot_->epoch != down.epoch()) {
    // The passive end refused an offer before it had a path, or the path is gone here already.
    if (!active_ || down.epoch() != epoch_ || phase_ != Phase::kPathing) return;
  }
  const Code code = code_from_wire(down.code());
  const std::string reason = clipped(down.reason());
  if (phase_ == Phase::kPathing && active_ && slot_ != nullptr && slot_->ready_sent) {
    // The passive end gave up what it, or we, may have used already.
    path_died(code, fmt::format("the peer says: {}", reason));
  } else if (phase_ == Phase::kPathing) {
    drop_slot();
    if (!active_) return;
    excluded_[candidate_] = fmt::format("the peer says: {}", reason);
    log(LogLevel::kWarning, fmt::format("{} does not work, says {}: {}",
                                        host_->transports()[candidates_[candidate_].local].offer.name, who(), reason));
    begin_path();
  } else if (active_ && slot_->usable && phase_ != Phase::kFencing && phase_ != Phase::kAwaitingFence) {
    path_died(code, fmt::format("the peer says: {}", reason));
  }
}

/// A path that was in use is dead, at whichever end it was noticed.
void SessionImpl::path_died(Code code, const std::string& reason) {
  const std::string name = host_->transports()[slot_->transport].offer.name;
  fence_code_ = code;
  fence_reason_ = reason;
  slot_->usable = false;
  close_slot();
  if (!carried_by_.empty()) set_public_state(PeerState::kRecovering);
  if (active_ && blames_transport(code) && !has_alternative()) {
    return fail({code == Code::kOk ? Code::kUnavailable : code,
                 fmt::format("{} to {} died: {}{}", name, who(), reason,
                             host_->config().failover ? "; no other transport is left" : "; failover is off")});
  }
  log(LogLevel::kWarning, fmt::format("{} to {} died: {}; fencing it", name, who(), reason));
  if (active_) {
    phase_ = Phase::kFencing;
  } else {
    control::Frame frame;
    frame.mutable_path_down()->set_epoch(slot_->epoch);
    frame.mutable_path_down()->set_code(static_cast<std::uint32_t>(code));
    frame.mutable_path_down()->set_reason(clipped(reason));
    send_frame(frame);
    phase_ = Phase::kAwaitingFence;
  }
  dirty_ = true;
}

bool SessionImpl::has_alternative() const {
  if (!host_->config().failover) return false;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    if (c != candidate_ && excluded_[c].empty()) return true;
  }
  return false;
}

void SessionImpl::handle_fence(const control::Fence& fence) {
  if (active_ || fence.epoch() != epoch_) return;
  if (slot_ == nullptr) {  // given up here before it was ever used
    if (phase_ != Phase::kPathing) return fail({Code::kDataLoss, fmt::format("{} fenced a path out of turn", who())});
    return send_fence_ack(fence.received());
  }
  fence_requested_ = true;
  fence_received_ = fence.received();
  if (!slot_->closed) {
    slot_->usable = false;
    if (fence_reason_.empty() || phase_ == Phase::kReady) fence_reason_ = "the peer fenced it";
    log(LogLevel::kWarning, fmt::format("{} to {} was fenced by the peer", carried_by_, who()));
    set_public_state(PeerState::kRecovering);
    close_slot();
  }
  phase_ = Phase::kAwaitingFence;
  dirty_ = true;
}

void SessionImpl::handle_fence_ack(const control::FenceAck& ack) {
  if (!active_ || phase_ != Phase::kAwaitingFence || ack.epoch() != epoch_) return;
  if (blames_transport(fence_code_)) excluded_[candidate_] = fence_reason_;
  after_fence(ack.received());
  if (phase_ == Phase::kDraining) return;
  begin_path();
}

/// Both ends are fenced and drained: settle what is known to be finished, keep the rest for the next path.
void SessionImpl::after_fence(std::uint64_t peer_received) {
  drop_slot();
  std::string why;
  if (!outbox_.apply_received(peer_received, why)) return fail({Code::kDataLoss, fmt::format("{} {}", who(), why)});
  phase_ = Phase::kPathing;
}

void SessionImpl::close_slot() {
  if (slot_ == nullptr || slot_->closed) return;
  slot_->closed = true;
  slot_->path->close();
}

void SessionImpl::drop_slot() {
  if (slot_ == nullptr) return;
  close_slot();
  --host_->transports()[slot_->transport].paths;
  dead_slot_ = std::move(slot_);
  // What the path will not report any more.
  InFlight& in_flight = dead_slot_->in_flight;
  while (!in_flight.empty()) request_ended(in_flight.end_oldest(), Code::kAborted);
  outbox_.abort_staged();
  staged_target_.reset();
  dirty_ = true;
}

void SessionImpl::advance_path(Clock::time_point now) {
  if (slot_ == nullptr) return;
  if (phase_ == Phase::kPathing) {
    const auto age = now - slot_->opened_at;
    if (slot_->down || age > kPathSetupTimeout) {
      const Code code = slot_->down ? slot_->down_code : Code::kDeadlineExceeded;
      const std::string reason = slot_->down ? slot_->down_reason
                                             : fmt::format("not proved within {} ms ({})", kPathSetupTimeout.count(),
                                                           !slot_->connected        ? "no connection"
                                                           : !slot_->hello_received ? "nothing arrives from the peer"
                                                                                    : "what we send does not arrive");
      // Once we said "ready" the other end may have begun to use it: that takes a fence.
      return slot_->ready_sent ? path_died(code, reason) : candidate_failed(code, reason);
    }
    if (slot_->connected && !slot_->hello_sent) prove_slot();
    if (age > kPathSetupTimeout / 2 && slot_->hello_received && !slot_->write_proved) slot_->write_failed = true;
    check_slot_proved();
    return;
  }
  // A goodbye that was said before the path was closed is read first.
  if (slot_->down && slot_->usable && now - slot_->down_at >= kGoodbyeGrace) {
    path_died(slot_->down_code, slot_->down_reason);
  }
  if (slot_ == nullptr || !slot_->closed || !slot_->path->drained()) return;
  if (phase_ == Phase::kFencing) {
    control::Frame frame;
    frame.mutable_fence()->set_epoch(slot_->epoch);
    frame.mutable_fence()->set_received(inbound_.received());
    send_frame(frame);
    phase_ = Phase::kAwaitingFence;
  } else if (phase_ == Phase::kAwaitingFence && !active_ && fence_requested_) {
    fence_requested_ = false;
    send_fence_ack(fence_received_);
  }
}

void SessionImpl::send_fence_ack(std::uint64_t peer_received) {
  control::Frame frame;
  frame.mutable_fence_ack()->set_epoch(epoch_);
  frame.mutable_fence_ack()->set_received(inbound_.received());
  send_frame(frame);
  after_fence(peer_received);
}

/// Work waits and nothing moves: ask the peer over the control connection. If it answers and still nothing moves, it
/// is the path. If it does not answer, it is the peer, who may come back (peer_timeout).
void SessionImpl::check_path_progress(Clock::time_point now) {
  if (slot_ == nullptr || !slot_->usable) return;
  if (slot_->in_flight.empty()) {
    slot_->last_progress = now;
    slot_->probed_at = {};
    return;
  }
  if (std::exchange(slot_->moved, false)) slot_->last_progress = now;
  // Completions are all that can be seen, so a large operation on a slow network needs its time.
  const milliseconds limit =
      host_->config().path_timeout + milliseconds(slot_->in_flight.oldest_bytes() * 1000 / kSlowestBytesPerSecond);
  if (now - slot_->last_progress < limit) {
    slot_->probed_at = {};
    return;
  }
  // The active end alone knows whether there is another path; RC retries and TCP's own timers watch for both.
  if (!active_ || !has_alternative()) return;
  if (slot_->probed_at == Clock::time_point{}) {
    slot_->probed_at = now;
    slot_->probe_answered = false;
    control::Frame frame;
    frame.mutable_ping()->set_nonce(slot_->epoch);
    send_frame(frame);
  } else if (slot_->probe_answered && now - slot_->probed_at > limit) {
    path_died(Code::kUnavailable,
              fmt::format("nothing moved for {} ms though the peer answers (path_timeout {} ms)",
                          std::chrono::duration_cast<milliseconds>(now - slot_->last_progress).count(), limit.count()));
  }
}

}  // namespace fairlead::datapath
