#include "verbs/cm/connection.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "verbs/cm/manager.h"

namespace fairlead::cm {
namespace {

// What we promise and ask for. 2^18 * 4.096 us are 1.07 s; fifteen times that is the peer's time to come back.
constexpr std::uint8_t kCmResponseTimeout = 18;
constexpr std::uint8_t kMaxCmRetries = 15;
// How long an MRA makes the peer wait for an application that has not answered yet: 68 s, as Linux has it.
constexpr std::uint8_t kMraServiceTimeout = 24;
// A packet's way there and back, beside the time that an answer takes.
constexpr Nanos kRoundTrip = 10 * kMillisecond;
// A listener that is not there may come: what asks at once is asked again for a while.
constexpr Nanos kAsksAgainFor = 2 * kSecond;
constexpr Nanos kAsksAgainAfter = 200 * kMillisecond;
constexpr Nanos kSidrAnswerKept = 60 * kSecond;

constexpr Nanos to_nanos(std::uint8_t exponent) noexcept { return Nanos{4096} << (exponent & 31); }

template <std::size_t N>
void fill(std::array<std::byte, N>& to, std::span<const std::byte> from) noexcept {
  std::copy_n(from.begin(), std::min(N, from.size()), to.begin());
}

}  // namespace

Connection::Connection(Manager& manager, std::uint32_t comm_id, const Gid& local, const Gid& remote, User* user)
    : manager_(manager), comm_id_(comm_id), local_(local), remote_(remote), user_(user) {}

Link& Connection::link() const noexcept { return manager_.link(); }

bool Connection::connect(const Req& wanted) {
  if (state_ != State::kIdle) return false;
  req_ = wanted;
  req_.local_comm_id = comm_id_;
  req_.local_ca_guid = manager_.ca_guid();
  req_.remote_cm_response_timeout = req_.local_cm_response_timeout = kCmResponseTimeout;
  req_.max_cm_retries = kMaxCmRetries;
  req_.primary.local = local_;
  req_.primary.remote = remote_;
  active_ = true;
  transaction_ = manager_.new_transaction();
  asks_again_until_ = manager_.now() + kAsksAgainFor;
  enter(State::kReqSent);
  send_until_answered(req_, answer_wait(), kMaxCmRetries);
  return true;
}

bool Connection::accept(const Rep& wanted) {
  if (state_ != State::kReqReceived) return false;
  rep_ = wanted;
  rep_.local_comm_id = comm_id_;
  rep_.remote_comm_id = remote_comm_id_;
  rep_.local_ca_guid = manager_.ca_guid();
  enter(State::kRepSent);
  send_until_answered(rep_, answer_wait(), req_.max_cm_retries);
  return true;
}

bool Connection::establish() {
  if (state_ == State::kRepSent) {
    // The application saw the peer's data, so the peer is ready and its RTU was lost.
    enter(State::kEstablished);
    tell({Event::Type::kEstablished, 0, {}});
    return true;
  }
  if (state_ != State::kRepReceived) return false;
  enter(State::kEstablished);
  send(Rtu{comm_id_, remote_comm_id_});
  return true;
}

bool Connection::reject(RejectReason reason, std::span<const std::byte> private_data) {
  if (state_ == State::kSidrReqReceived) {
    SidrRep refusal;
    refusal.status =
        reason == RejectReason::kInvalidServiceId ? SidrRep::Status::kServiceNotSupported : SidrRep::Status::kRejected;
    fill(refusal.private_data, private_data);
    return answer(refusal);
  }
  if (state_ != State::kReqReceived && state_ != State::kRepSent && state_ != State::kRepReceived) return false;
  send_reject(reason, private_data);
  enter(State::kClosed);
  return true;
}

bool Connection::disconnect() {
  if (state_ != State::kEstablished && state_ != State::kRepSent) return false;
  enter(State::kDreqSent);
  transaction_ = manager_.new_transaction();
  send_until_answered(Dreq{comm_id_, remote_comm_id_, remote_qpn()}, answer_wait(), kMaxCmRetries);
  return true;
}

bool Connection::resolve(const SidrReq& wanted) {
  if (state_ != State::kIdle) return false;
  sidr_req_ = wanted;
  sidr_req_.request_id = comm_id_;
  active_ = true;
  transaction_ = manager_.new_transaction();
  asks_again_until_ = manager_.now() + kAsksAgainFor;
  enter(State::kSidrReqSent);
  send_until_answered(sidr_req_, to_nanos(kCmResponseTimeout), kMaxCmRetries);
  return true;
}

bool Connection::answer(const SidrRep& wanted) {
  if (state_ != State::kSidrReqReceived) return false;
  sidr_rep_ = wanted;
  sidr_rep_.request_id = remote_comm_id_;
  sidr_rep_.service_id = sidr_req_.service_id;
  enter(State::kSidrAnswered);
  send(sidr_rep_);
  wake_at(manager_.now() + kSidrAnswerKept);
  return true;
}

void Connection::release() {
  user_ = nullptr;
  switch (state_) {
    case State::kReqSent:
      send_reject(RejectReason::kTimeout, {});
      return enter(State::kClosed);
    case State::kReqReceived:
    case State::kRepReceived:
      reject(RejectReason::kConsumer, {});
      return;
    case State::kSidrReqReceived:
      reject(RejectReason::kConsumer, {});
      return manager_.leave(*this);
    case State::kRepSent:
    case State::kEstablished:
      disconnect();
      return manager_.leave(*this);
    case State::kDreqSent:
    case State::kSidrAnswered:
      return manager_.leave(*this);
    default:
      return enter(State::kClosed);
  }
}

void Connection::on_first(const Req& req, std::uint64_t transaction) {
  req_ = req;
  remote_comm_id_ = req.local_comm_id;
  transaction_ = transaction;
  enter(State::kReqReceived);
}

void Connection::on_first(const SidrReq& req, std::uint64_t transaction) {
  sidr_req_ = req;
  remote_comm_id_ = req.request_id;
  transaction_ = transaction;
  enter(State::kSidrReqReceived);
}

void Connection::on(const Req&) {
  if (state_ == State::kReqReceived) send(Mra{comm_id_, remote_comm_id_, About::kReq, kMraServiceTimeout});
  if (state_ == State::kRepSent) manager_.send(local_, remote_, resend_);
}

void Connection::on(const Rep& rep) {
  if (state_ == State::kReqSent) {
    rep_ = rep;
    remote_comm_id_ = rep.local_comm_id;
    enter(State::kRepReceived);
    return tell({Event::Type::kReply, 0, rep_.private_data});
  }
  if (rep.local_comm_id != remote_comm_id_) return;
  if (state_ == State::kRepReceived) send(Mra{comm_id_, remote_comm_id_, About::kRep, kMraServiceTimeout});
  if (state_ == State::kEstablished) send(Rtu{comm_id_, remote_comm_id_});
}

void Connection::on(const Rtu& rtu) {
  if (state_ != State::kRepSent || rtu.local_comm_id != remote_comm_id_) return;
  enter(State::kEstablished);
  tell({Event::Type::kEstablished, 0, {}});
}

void Connection::on(const Rej& rej) {
  const int reason = static_cast<int>(rej.reason);
  if (state_ == State::kReqSent && rej.reason == RejectReason::kInvalidServiceId && asks_again()) return;
  switch (state_) {
    case State::kReqSent:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kRepReceived:
      enter(State::kClosed);
      return tell({Event::Type::kRejected, reason, rej.private_data});
    case State::kEstablished:
      // The peer gave up waiting for our RTU.
      enter_timewait();
      return tell({Event::Type::kDisconnected, reason, {}});
    default:
      return;
  }
}

void Connection::on(const Mra& mra) {
  const bool expected = (state_ == State::kReqSent && mra.about == About::kReq) ||
                        (state_ == State::kRepSent && mra.about == About::kRep);
  if (!expected) return;
  // By it a REJ of ours finds the process that has the request, where several share the address.
  if (state_ == State::kReqSent) remote_comm_id_ = mra.local_comm_id;
  wake_at(manager_.now() + to_nanos(mra.service_timeout) + wait_);
}

void Connection::on(const Dreq& dreq, std::uint64_t transaction) {
  if (dreq.local_comm_id != remote_comm_id_ || dreq.remote_qpn != local_qpn()) return;
  switch (state_) {
    case State::kRepSent:
    case State::kRepReceived:
    case State::kEstablished:
    case State::kDreqSent:
      answer_disconnect(transaction);
      enter_timewait();
      return tell({Event::Type::kDisconnected, 0, {}});
    case State::kTimewait:
    case State::kClosed:  // the peer asks more slowly than we forget
      return answer_disconnect(transaction);
    default:
      return;
  }
}

void Connection::on(const Drep& drep) {
  if (state_ != State::kDreqSent || drep.local_comm_id != remote_comm_id_) return;
  enter_timewait();
  tell({Event::Type::kDisconnected, 0, {}});
}

void Connection::on(const SidrReq&) {
  if (state_ == State::kSidrAnswered) send(sidr_rep_);
}

void Connection::on(const SidrRep& rep) {
  if (state_ != State::kSidrReqSent) return;
  if (rep.status == SidrRep::Status::kServiceNotSupported && asks_again()) return;
  sidr_rep_ = rep;
  enter(State::kClosed);
  tell({Event::Type::kResolved, static_cast<int>(rep.status), sidr_rep_.private_data});
}

// True where the listener that was not there may come yet.
bool Connection::asks_again() {
  if (retries_left_ == 0 || manager_.now() >= asks_again_until_) return false;
  wake_at(manager_.now() + kAsksAgainAfter);
  return true;
}

void Connection::wait_for_listener(Nanos until) { wake_at(until); }

void Connection::on_timer(Nanos now) {
  wake_at(0);
  if (state_ == State::kTimewait) {
    enter(State::kClosed);
    return tell({Event::Type::kTimewaitExit, 0, {}});
  }
  if (state_ == State::kReqReceived || state_ == State::kSidrReqReceived) {
    reject(RejectReason::kInvalidServiceId, {});
    return enter(State::kClosed);
  }
  if (state_ == State::kSidrAnswered) return enter(State::kClosed);
  if (retries_left_ == 0) return give_up();
  --retries_left_;
  manager_.send(local_, remote_, resend_);
  wake_at(now + wait_);
}

void Connection::give_up() {
  switch (state_) {
    case State::kReqSent:
    case State::kRepSent:
      send_reject(RejectReason::kTimeout, {});
      [[fallthrough]];
    case State::kSidrReqSent:
      enter(State::kClosed);
      return tell({Event::Type::kUnreachable, -ETIMEDOUT, {}});
    case State::kDreqSent:
      enter_timewait();
      return tell({Event::Type::kDisconnected, -ETIMEDOUT, {}});
    default:
      return;
  }
}

void Connection::send(const Message& message) { manager_.send(local_, remote_, encode({transaction_, message})); }

void Connection::send_until_answered(const Message& message, Nanos wait, unsigned retries) {
  resend_ = encode({transaction_, message});
  retries_left_ = retries;
  wait_ = wait;
  wake_at(manager_.now() + wait);
  manager_.send(local_, remote_, resend_);
}

void Connection::answer_disconnect(std::uint64_t transaction) {
  manager_.send(local_, remote_, encode({transaction, Drep{comm_id_, remote_comm_id_}}));
}

void Connection::send_reject(RejectReason reason, std::span<const std::byte> private_data) {
  Rej rej;
  rej.local_comm_id = comm_id_;
  rej.remote_comm_id = remote_comm_id_;
  rej.reason = reason;
  rej.about = state_ == State::kReqReceived ? About::kReq : state_ == State::kRepReceived ? About::kRep : About::kOther;
  if (reason == RejectReason::kTimeout) {
    // The peer may not know our identifier yet, or we not its: the CA's GUID tells it whose request ended.
    const std::uint64_t guid = manager_.ca_guid();
    rej.info_length = sizeof(guid);
    for (unsigned i = 0; i < sizeof(guid); ++i) rej.info[i] = static_cast<std::byte>(guid >> (56 - 8 * i));
  }
  fill(rej.private_data, private_data);
  send(rej);
}

void Connection::enter(State state) {
  manager_.forget_keys(*this);
  state_ = state;
  wake_at(0);
  manager_.remember_keys(*this);
}

void Connection::wake_at(Nanos deadline) { manager_.set_timer(*this, std::exchange(deadline_, deadline)); }

// IBTA 12.9.8.3: twice a packet's lifetime, and the time an acknowledgement takes.
void Connection::enter_timewait() {
  enter(State::kTimewait);
  wake_at(manager_.now() + to_nanos(req_.primary.local_ack_timeout));
}

void Connection::tell(const Event& event) noexcept {
  if (user_ != nullptr) user_->on_event(*this, event);
}

// An active end waits as long as it told the peer that it may take; a passive end as the peer said it would.
Nanos Connection::answer_wait() const noexcept {
  return to_nanos(active_ ? req_.remote_cm_response_timeout : req_.local_cm_response_timeout) + kRoundTrip;
}

}  // namespace fairlead::cm
