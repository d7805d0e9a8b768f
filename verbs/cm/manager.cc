#include "verbs/cm/manager.h"

#include <algorithm>

namespace fairlead::cm {
namespace {

constexpr Nanos kMayBeginAgain = 10 * soft::kSecond;
constexpr Nanos kRequestWaits = 2 * soft::kSecond;

}  // namespace

Manager::Manager(Link& link, std::uint64_t ca_guid, std::uint64_t seed)
    : link_(link), ca_guid_(ca_guid), random_(seed) {}

Connection& Manager::open(const Gid& local, const Gid& remote, User& user) { return add(local, remote, &user); }

Connection& Manager::add(const Gid& local, const Gid& remote, User* user) {
  sweep();
  std::uint32_t comm_id = 0;
  while (comm_id == 0 || connections_.contains(comm_id)) comm_id = static_cast<std::uint32_t>(random_());
  auto& slot = connections_[comm_id];
  slot = std::make_unique<Connection>(*this, comm_id, local, remote, user);
  return *slot;
}

// Connections end by themselves; they are deleted where none of them is at work.
void Manager::sweep() {
  std::erase_if(connections_, [](const auto& entry) {
    const Connection& connection = *entry.second;
    return connection.user_ == nullptr && connection.state_ == Connection::State::kClosed;
  });
}

bool Manager::listen(std::uint64_t service, const Gid& local, Listener& listener) {
  for (const Service& other : services_) {
    if (other.id == service && (other.local == local || other.local.is_null() || local.is_null())) return false;
  }
  services_.push_back({service, local, &listener});
  for (const auto& [id, connection] : connections_) {
    if (connection->waits_for_listener() && connection->req_.service_id == service &&
        find_listener(service, connection->local_) == &listener) {
      offer(*connection, listener);
    }
  }
  return true;
}

void Manager::unlisten(std::uint64_t service, Listener& listener) noexcept {
  const std::size_t ended = std::erase_if(
      services_, [&](const Service& entry) { return entry.id == service && entry.listener == &listener; });
  if (ended != 0) ended_.push_back({service, now() + kMayBeginAgain});
}

bool Manager::may_begin_again(std::uint64_t service) noexcept {
  std::erase_if(ended_, [at = now()](const Ended& entry) { return entry.until < at; });
  return std::any_of(ended_.begin(), ended_.end(), [service](const Ended& entry) { return entry.id == service; });
}

void Manager::offer(Connection& connection, Listener& listener) {
  connection.enter(connection.state_);  // it waits no longer
  connection.user_ = listener.on_request(connection);
  if (connection.user_ == nullptr) connection.enter(Connection::State::kClosed);
}

Connection* Manager::find(std::uint32_t comm_id, const Gid& remote) noexcept {
  const auto found = connections_.find(comm_id);
  return found != connections_.end() && found->second->remote_ == remote ? found->second.get() : nullptr;
}

Connection* Manager::find_passive(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept {
  for (const auto& [id, connection] : connections_) {
    const bool sidr = connection->state_ == Connection::State::kSidrReqReceived ||
                      connection->state_ == Connection::State::kSidrAnswered;
    if (!connection->active_ && connection->remote_comm_id_ == remote_comm_id && connection->remote_ == remote &&
        connection->state_ != Connection::State::kClosed && sidr == datagram) {
      return connection.get();
    }
  }
  return nullptr;
}

Listener* Manager::find_listener(std::uint64_t service, const Gid& local) noexcept {
  for (const Service& entry : services_) {
    if (entry.id == service && (entry.local.is_null() || entry.local == local)) return entry.listener;
  }
  return nullptr;
}

// IBTA 12.9.8.3.1: the peer's queue pair is already connected here, so the peer must have forgotten that connection.
Connection* Manager::find_stale(const Req& req, const Gid& remote) noexcept {
  for (const auto& [id, connection] : connections_) {
    const Connection::State state = connection->state_;
    if ((state == Connection::State::kEstablished || state == Connection::State::kRepSent) &&
        connection->remote_ == remote && connection->remote_qpn() == req.local_qpn &&
        connection->remote_ca_guid() == req.local_ca_guid) {
      return connection.get();
    }
  }
  return nullptr;
}

void Manager::reject(const Gid& local, const Gid& remote, std::uint64_t transaction, std::uint32_t remote_comm_id,
                     About about, RejectReason reason) noexcept {
  Rej rej;
  rej.remote_comm_id = remote_comm_id;
  rej.about = about;
  rej.reason = reason;
  link_.send(local, remote, encode({transaction, rej}));
}

void Manager::on_mad(const Gid& local, const Gid& remote, std::span<const std::byte> bytes) {
  const auto mad = parse(bytes);
  if (!mad) return;
  std::visit([&](const auto& message) { on(message, mad->transaction_id, local, remote); }, mad->message);
}

void Manager::run_timers() {
  const Nanos now = link_.now();
  Nanos next = 0;
  for (const auto& [id, connection] : connections_) {
    connection->on_timer(now);
    if (connection->deadline_ != 0 && (next == 0 || connection->deadline_ < next)) next = connection->deadline_;
  }
  sweep();
  if (next != 0) link_.set_deadline(next);
}

void Manager::disconnect_all() noexcept {
  for (const auto& [id, connection] : connections_) connection->release();
}

void Manager::on(const Req& req, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* known = find_passive(req.local_comm_id, remote, false)) return known->on(req);
  Listener* listener = find_listener(req.service_id, local);
  if (listener == nullptr && !may_begin_again(req.service_id)) {
    return reject(local, remote, transaction, req.local_comm_id, About::kReq, RejectReason::kInvalidServiceId);
  }
  if (Connection* stale = find_stale(req, remote)) {
    stale->disconnect();
    return reject(local, remote, transaction, req.local_comm_id, About::kReq, RejectReason::kStaleConnection);
  }
  Connection& connection = add(local, remote, nullptr);
  connection.on_first(req, transaction);
  if (listener == nullptr) return connection.wait_for_listener(now() + kRequestWaits);
  offer(connection, *listener);
}

void Manager::on(const SidrReq& req, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* known = find_passive(req.request_id, remote, true)) return known->on(req);
  Listener* listener = find_listener(req.service_id, local);
  Connection& connection = add(local, remote, nullptr);
  connection.on_first(req, transaction);
  if (listener == nullptr) {
    connection.reject(RejectReason::kInvalidServiceId, {});
    return connection.enter(Connection::State::kClosed);
  }
  offer(connection, *listener);
}

void Manager::on(const Rep& rep, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* connection = find(rep.remote_comm_id, remote)) return connection->on(rep);
  reject(local, remote, transaction, rep.local_comm_id, About::kRep, RejectReason::kInvalidCommId);
}

void Manager::on(const Rej& rej, std::uint64_t, const Gid&, const Gid& remote) {
  Connection* connection = find(rej.remote_comm_id, remote);
  // A peer that gave up before it had our answer knows only its own identifier.
  if (connection == nullptr && rej.reason == RejectReason::kTimeout) {
    connection = find_passive(rej.local_comm_id, remote, false);
  }
  if (connection != nullptr) connection->on(rej);
}

void Manager::on(const Dreq& dreq, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* connection = find(dreq.remote_comm_id, remote)) return connection->on(dreq, transaction);
  // Gone here already: the peer need not ask again.
  link_.send(local, remote, encode({transaction, Drep{dreq.remote_comm_id, dreq.local_comm_id}}));
}

void Manager::on(const Mra& mra, std::uint64_t, const Gid&, const Gid& remote) {
  if (Connection* connection = find(mra.remote_comm_id, remote)) connection->on(mra);
}

void Manager::on(const Rtu& rtu, std::uint64_t, const Gid&, const Gid& remote) {
  if (Connection* connection = find(rtu.remote_comm_id, remote)) connection->on(rtu);
}

void Manager::on(const Drep& drep, std::uint64_t, const Gid&, const Gid& remote) {
  if (Connection* connection = find(drep.remote_comm_id, remote)) connection->on(drep);
}

void Manager::on(const SidrRep& rep, std::uint64_t, const Gid&, const Gid& remote) {
  if (Connection* connection = find(rep.request_id, remote)) connection->on(rep);
}

}  // namespace fairlead::cm
