// A session whose control connection broke, and what goes on over another.
//
// Data flows meanwhile. The active end dials again where the peer had answered, and at its other places; the passive
// end waits. The connection
// begins as a stranger's, with a session of its own at the accepting end: who shows there that it is the peer of one
// that is kept (resumption.h) has its connection handed over to that, and the stranger is forgotten. Both ends then say
// again what the other has not heard. Where nobody comes back within peer_timeout, or the peer knows nothing of the
// session, or nobody listens where it did, the session has lost its peer.
#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "datapath/protocol/peer_text.h"
#include "datapath/session/session.h"
#include "fairlead/log.h"

namespace fairlead::datapath {

/// The greeting is over: both ends keep what they say, if both can.
Status SessionImpl::begin_keeping(std::string_view secret) {
  link_.greeted(peer_version_ >= kResumes);
  if (peer_version_ < kResumes) return {};
  if (secret.size() != Resumption::kSecretBytes) {
    return {Code::kDataLoss, fmt::format("a secret of {} bytes to resume the session with; {} are due", secret.size(),
                                         Resumption::kSecretBytes)};
  }
  resumption_.begin(host_->principals(), greeting_.principal(), secret);
  return {};
}

/// One that ends goes on only to say so.
bool SessionImpl::may_resume() const noexcept {
  if (peer_version_ < kResumes || farewell_until_ || goodbye_seen_) return false;
  const bool ends = phase_ == Phase::kDraining && close_status_.ok();
  return phase_ == Phase::kOpen || phase_ == Phase::kClosing || ends;
}

void SessionImpl::await_resumption(const Status& why) {
  cut_because_ = why.message();
  cut_at_ = now();
  log(LogLevel::kInfo, fmt::format("the control connection to {} broke: {}; {}", who(), cut_because_,
                                   active_ ? "connecting again" : "waiting for it to connect again"));
  dirty_ = true;
  link_.rejoin();
  if (!active_) host_->session_cut(*this, true);
}

/// It cannot be resumed.
void SessionImpl::end_cut(const std::string& because) {
  if (phase_ == Phase::kDraining) {
    goodbye_seen_ = dirty_ = true;  // there is nobody left to say it
    return;
  }
  fail({Code::kPeerDied, fmt::format("lost {}: {}; {}", who(), cut_because_, because)});
}

/// Both ends have shown who they are.
void SessionImpl::resumed(std::uint64_t heard_there) {
  saw(SessionEvent::kResumed);
  if (!link_.rejoined(heard_there)) {
    return fail({Code::kDataLoss,
                 fmt::format("{} says that it heard {} control frames of ours, which cannot be", who(), heard_there)});
  }
  {
    const std::lock_guard lock(mutex_);
    description_.address = link_.stream().peer_address();  // it may have moved
  }
  if (!active_) host_->session_cut(*this, false);
  stats_.resumptions.add();
  dirty_ = true;
  log(LogLevel::kInfo, fmt::format("the control connection to {} stands again after {} ms", who(),
                                   std::chrono::duration_cast<std::chrono::milliseconds>(now() - cut_at_).count()));
}

// ---- active --------------------------------------------------------------------------------------------------------

/// On a connection that is to take the place of the one that broke. Who answers wrongly is not the peer.
void SessionImpl::hear_resuming(const control::Frame& frame) {
  if (const auto* challenge = std::get_if<control::Challenge>(&frame)) {
    const Result<control::Proof> proof = resumption_.answer(*challenge);
    return proof ? link_.say(*proof) : not_the_peer();
  }
  if (const auto* answer = std::get_if<control::Resumed>(&frame)) {
    return resumption_.check(*answer).ok() ? resumed(answer->heard) : not_the_peer();
  }
  if (const auto* refused = std::get_if<control::Refused>(&frame)) return hear_refused_again(*refused);
  not_the_peer();
}

void SessionImpl::not_the_peer() { link_.is_useless({Code::kUnavailable, "it is not the peer"}); }

/// By the peer, which knows nothing of the session any more: that is its end. By somebody else, who is where the peer
/// was, or may be: of several places it may be at another.
void SessionImpl::hear_refused_again(const control::Refused& refused) {
  const bool another = peer_engine_ != 0 && refused.engine != 0 && refused.engine != peer_engine_;
  const bool is_peer = peer_engine_ != 0 && refused.engine == peer_engine_;
  const std::string said = fmt::format("it refused us: {}{}", clipped(refused.reason),
                                       another ? "; it is another engine than the session's" : "");
  if (is_peer || !link_.places().several()) return end_cut(fmt::format("connected again, {}", said));
  log(LogLevel::kWarning, fmt::format("{} is not at {}: {}", who(), link_.stream().peer_address(), said));
  link_.is_useless({Code::kNotFound, said});
}

// ---- passive: who connected is not known yet -----------------------------------------------------------------------

void SessionImpl::handle_resume(const control::Resume& resume) {
  const std::shared_ptr<SessionImpl> session = host_->find_session(resume.session_id);
  if (session == nullptr) return refuse({Code::kNotFound, "the session has ended here"});
  asked_ = {.session = session, .resume = resume, .nonce = nonce(), .proof = std::nullopt};
  if (&session->host() != host_.get()) {
    asked_->elsewhere = dirty_ = true;  // the connection cannot be handed over from within its own call
    return;
  }
  send_frame(control::Challenge{.nonce = asked_->nonce});
}

/// To the host of the session that it is for.
void SessionImpl::move_over() {
  const Asked asked = *std::exchange(asked_, std::nullopt);
  const std::shared_ptr<SessionImpl> session = asked.session.lock();
  if (session == nullptr) return refuse({Code::kNotFound, "the session has ended here"});
  std::unique_ptr<ControlChannel> channel = link_.release();
  abandon();
  if (channel != nullptr) session->host().resume_here(std::move(channel), asked.resume);
}

/// To the session that it is for, if it shows that.
void SessionImpl::hand_over() {
  const Asked asked = *std::exchange(asked_, std::nullopt);
  const std::shared_ptr<SessionImpl> kept = asked.session.lock();
  const Status ended(Code::kNotFound, "the session has ended here");
  if (kept == nullptr) return refuse(ended);
  SessionImpl& session = *kept;
  assert(&session.host() == host_.get());
  if (const Status shown = session.resumption_.check(asked.resume, asked.nonce, *asked.proof); !shown.ok()) {
    return refuse(shown);
  }
  if (!session.may_resume()) return refuse(ended);
  std::unique_ptr<ControlChannel> channel = link_.release();
  abandon();
  if (channel == nullptr) return;
  if (!session.link_.is_cut()) {
    session.cut_at_ = now();
    session.saw(SessionEvent::kHungUp);
  }
  session.link_.take_over(std::move(channel));
  session.link_.say(session.resumption_.confirm(asked.resume, asked.nonce, session.link_.heard()));
  session.resumed(asked.resume.heard);
}

}  // namespace fairlead::datapath
