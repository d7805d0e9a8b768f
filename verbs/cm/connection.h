// One end of a connection, or of a datagram service's resolution, as communication management sees it.
//
// active:  connect -> kReply -> establish           or kRejected, kUnreachable
// passive: (Listener::on_request) -> accept -> kEstablished   or reject
// both:    disconnect, kDisconnected, after a while kTimewaitExit
// datagrams: resolve -> kResolved; the other end (Listener::on_request) -> answer
//
// Requests are sent again until answered; duplicates are answered again. Each end of a connection ends with exactly one
// of kRejected, kUnreachable, kDisconnected unless its user releases it before.
// Owned by its Manager. Threads: none of its own; under the manager's lock (manager.h). A user's on_event may call
// nothing of the connection.
// Source: IBTA volume 1, 12.9 (states and timers), 12.9.8.3 (timewait), 12.11 (SIDR).
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "verbs/cm/messages.h"

namespace fairlead::cm {

class Connection;
class Link;
class Manager;

struct Event {
  enum class Type : std::uint8_t {
    kReply,         // the peer accepts; establish() is next
    kEstablished,   // the peer is ready
    kRejected,      // status: the reason
    kUnreachable,   // no answer; status: -ETIMEDOUT
    kDisconnected,  // the peer left, or was left and answered or not
    kTimewaitExit,  // no packet of the connection is under way any more
    kResolved,      // sidr() holds the queue pair; status: SidrRep::Status where it is not kValid
  };
  Type type = Type::kReply;
  int status = 0;
  std::span<const std::byte> private_data;  // valid during the call
};

class User {
 public:
  virtual void on_event(Connection& connection, const Event& event) noexcept = 0;

 protected:
  ~User() = default;
};

class Connection {
 public:
  enum class State : std::uint8_t {
    kIdle,
    kReqSent,
    kReqReceived,
    kRepSent,
    kRepReceived,
    kEstablished,
    kDreqSent,
    kTimewait,
    kSidrReqSent,
    kSidrReqReceived,
    kSidrAnswered,
    kClosed,
  };

  Connection(Manager& manager, std::uint32_t comm_id, const Gid& local, const Gid& remote, User* user);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Each returns false, and does nothing, in a state that it does not fit.
  /// Fills in the identifiers and the timers of the request, and sends it.
  bool connect(const Req& wanted);
  bool accept(const Rep& wanted);
  bool establish();
  bool reject(RejectReason reason, std::span<const std::byte> private_data);
  bool disconnect();
  bool resolve(const SidrReq& wanted);
  bool answer(const SidrRep& wanted);
  /// The user leaves: the peer is told, and no event comes any more. The connection is the manager's to end.
  void release();
  void set_user(User* user) noexcept { user_ = user; }

  /// What carries it.
  [[nodiscard]] Link& link() const noexcept;
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool is_active() const noexcept { return active_; }
  [[nodiscard]] const Gid& local() const noexcept { return local_; }
  [[nodiscard]] const Gid& remote() const noexcept { return remote_; }
  /// As sent or as received.
  [[nodiscard]] const Req& req() const noexcept { return req_; }
  [[nodiscard]] const Rep& rep() const noexcept { return rep_; }
  [[nodiscard]] const SidrReq& sidr_req() const noexcept { return sidr_req_; }
  [[nodiscard]] const SidrRep& sidr() const noexcept { return sidr_rep_; }

 private:
  friend class Manager;

  // What arrives. What is no answer to this end's, or of another transaction, changes nothing.
  void on_first(const Req& req, std::uint64_t transaction);
  void on_first(const SidrReq& req, std::uint64_t transaction);
  void on(const Req& duplicate);
  void on(const Rep& rep);
  void on(const Rtu& rtu);
  void on(const Rej& rej);
  void on(const Mra& mra);
  void on(const Dreq& dreq, std::uint64_t transaction);
  void on(const Drep& drep);
  void on(const SidrReq& duplicate);
  void on(const SidrRep& rep);
  void on_timer(Nanos now);
  // A request whose service may begin yet.
  void wait_for_listener(Nanos until);
  [[nodiscard]] bool waits_for_listener() const noexcept {
    return (state_ == State::kReqReceived || state_ == State::kSidrReqReceived) && user_ == nullptr && deadline_ != 0;
  }
  [[nodiscard]] bool is_datagram() const noexcept {
    return state_ == State::kSidrReqReceived || state_ == State::kSidrAnswered;
  }

  void send(const Message& message);
  void send_until_answered(const Message& message, Nanos wait, unsigned retries);
  void answer_disconnect(std::uint64_t transaction);
  void send_reject(RejectReason reason, std::span<const std::byte> private_data);
  void give_up();
  void enter(State state);
  void enter_timewait();
  void wake_at(Nanos deadline);
  bool asks_again();
  void tell(const Event& event) noexcept;
  [[nodiscard]] std::uint32_t local_qpn() const noexcept { return active_ ? req_.local_qpn : rep_.local_qpn; }
  [[nodiscard]] std::uint32_t remote_qpn() const noexcept { return active_ ? rep_.local_qpn : req_.local_qpn; }
  [[nodiscard]] std::uint64_t remote_ca_guid() const noexcept {
    return active_ ? rep_.local_ca_guid : req_.local_ca_guid;
  }
  [[nodiscard]] Nanos answer_wait() const noexcept;

  Manager& manager_;
  const std::uint32_t comm_id_;
  const Gid local_;
  const Gid remote_;
  User* user_;
  State state_ = State::kIdle;
  bool active_ = false;
  std::uint32_t remote_comm_id_ = 0;  // of SIDR: the request's
  std::uint64_t transaction_ = 0;
  Req req_;
  Rep rep_;
  SidrReq sidr_req_;
  SidrRep sidr_rep_;

  MadBytes resend_{};  // what is sent again at the deadline
  unsigned retries_left_ = 0;
  Nanos wait_ = 0;
  Nanos deadline_ = 0;  // 0: none; set by wake_at() alone
  Nanos asks_again_until_ = 0;
};

}  // namespace fairlead::cm
