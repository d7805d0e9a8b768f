#include "verbs/cm/manager.h"

#include <algorithm>

namespace fairlead::cm {
namespace {

constexpr Nanos kMayBeginAgain = 10 * kSecond;
constexpr Nanos kRequestWaits = 2 * kSecond;

}  // namespace

Manager::Manager(Link& link, std::uint64_t ca_guid, std::uint64_t seed)
    : link_(link), ca_guid_(ca_guid), random_(seed) {}

Connection& Manager::open(const Gid& local, const Gid& remote, User& user) { return add(local, remote, &user); }

Connection& Manager::add(const Gid& local, const Gid& remote, User* user) {
  sweep();
  const auto place = link_.place();
  std::uint32_t comm_id = 0;
  while (comm_id == 0 || connections_.contains(comm_id)) {
    comm_id = static_cast<std::uint32_t>(random_());
    if (place) comm_id = (comm_id & 0xffffff) | std::uint32_t{*place} << 24;
  }
  auto& slot = connections_[comm_id];
  slot = std::make_unique<Connection>(*this, comm_id, local, remote, user);
  return *slot;
}

// Connections end by themselves; they are deleted where none of them is at work.
void Manager::sweep() {
  for (const std::uint32_t comm_id : closed_) {
    const auto found = connections_.find(comm_id);
    if (found != connections_.end() && found->second->state_ == Connection::State::kClosed) connections_.erase(found);
  }
  closed_.clear();
}

void Manager::set_timer(Connection& connection, Nanos before) {
  if (before != 0) timers_.erase({before, &connection});
  if (connection.deadline_ == 0) return;
  timers_.insert({connection.deadline_, &connection});
  link_.set_deadline(connection.deadline_);
}

std::size_t Manager::KeyHash::operator()(const Key& key) const noexcept {
  const std::uint64_t number = std::uint64_t{key.number} << 2 | static_cast<std::uint64_t>(key.kind);
  return soft::GidHash{}(key.remote) * 31 ^ std::hash<std::uint64_t>{}(key.ca_guid * 31 ^ number);
}

Manager::Key Manager::request_key(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept {
  return {datagram ? Key::Kind::kDatagramRequest : Key::Kind::kRequest, remote, remote_comm_id};
}

std::array<std::pair<Manager::Key, bool>, 2> Manager::keys_of(const Connection& connection) noexcept {
  using State = Connection::State;
  const State state = connection.state_;
  const bool connected = state == State::kEstablished || state == State::kRepSent;
  return {
      {{request_key(connection.remote_comm_id_, connection.remote_, connection.is_datagram()),
        !connection.active_ && state != State::kIdle && state != State::kClosed},
       {{Key::Kind::kQueuePair, connection.remote_, connection.remote_qpn(), connection.remote_ca_guid()}, connected}}};
}

void Manager::forget_keys(Connection& connection) {
  for (const auto& [key, has] : keys_of(connection)) {
    if (!has) continue;
    const auto [first, last] = by_key_.equal_range(key);
    const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second == &connection; });
    if (own != last) by_key_.erase(own);
  }
}

void Manager::remember_keys(Connection& connection) {
  for (const auto& [key, has] : keys_of(connection)) {
    if (has) by_key_.emplace(key, &connection);
  }
  if (connection.state_ == Connection::State::kClosed && connection.user_ == nullptr) {
    closed_.push_back(connection.comm_id_);
  }
}

// A peer that makes connections end faster than their timers must not fill the memory; the oldest may be forgotten,
// since whoever asks about an unknown connection is answered too.
void Manager::leave(Connection& connection) {
  left_.push_back(connection.comm_id_);
  if (left_.size() <= kMostLeft) return;
  const auto oldest = connections_.find(left_.front());
  left_.pop_front();
  if (oldest != connections_.end() && oldest->second->user_ == nullptr) {
    oldest->second->enter(Connection::State::kClosed);
  }
}

bool Manager::Service::hears_at(const Gid& address) const noexcept {
  return local.is_null() ? hears(family, address) : local == address;
}

bool Manager::Service::overlaps(const Service& other) const noexcept {
  if (!local.is_null()) return other.hears_at(local);
  if (!other.local.is_null()) return hears_at(other.local);
  return family == other.family || family == Family::kAny || other.family == Family::kAny;
}

bool Manager::listen(std::uint64_t service, const Gid& local, Listener& listener, Family family) {
  const Service wanted{local, family, &listener};
  const auto [first, last] = services_.equal_range(service);
  if (std::any_of(first, last, [&](const auto& entry) { return entry.second.overlaps(wanted); })) return false;
  services_.emplace(service, wanted);
  for (const std::uint32_t comm_id : std::exchange(waiting_, {})) {
    const auto found = connections_.find(comm_id);
    if (found == connections_.end() || !found->second->waits_for_listener()) continue;
    Connection& connection = *found->second;
    const std::uint64_t asked = connection.is_datagram() ? connection.sidr_req_.service_id : connection.req_.service_id;
    if (asked == service && wanted.hears_at(connection.local_)) {
      offer(connection, listener);
    } else {
      waiting_.push_back(comm_id);
    }
  }
  return true;
}

void Manager::unlisten(std::uint64_t service, Listener& listener) noexcept {
  const auto [first, last] = services_.equal_range(service);
  const auto own = std::find_if(first, last, [&](const auto& entry) { return entry.second.listener == &listener; });
  if (own == last) return;
  services_.erase(own);
  std::erase_if(ended_, [at = now()](const auto& entry) { return entry.second < at; });
  ended_[service] = now() + kMayBeginAgain;
}

bool Manager::may_wait_for(std::uint64_t service) {
  const auto ended = ended_.find(service);
  if (ended == ended_.end() || ended->second < now()) return false;
  std::erase_if(waiting_, [this](std::uint32_t comm_id) {
    const auto found = connections_.find(comm_id);
    return found == connections_.end() || !found->second->waits_for_listener();
  });
  return waiting_.size() < kMostWaiting;
}

void Manager::wait_for_listener(Connection& connection) {
  waiting_.push_back(connection.comm_id_);
  connection.wait_for_listener(now() + kRequestWaits);
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

Connection* Manager::find(std::uint32_t comm_id, const Gid& remote, std::uint64_t transaction) noexcept {
  Connection* found = find(comm_id, remote);
  return found != nullptr && found->transaction_ == transaction ? found : nullptr;
}

Connection* Manager::find(const Key& key) noexcept {
  const auto found = by_key_.find(key);
  return found != by_key_.end() ? found->second : nullptr;
}

Connection* Manager::find_passive(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept {
  return find(request_key(remote_comm_id, remote, datagram));
}

Listener* Manager::find_listener(std::uint64_t service, const Gid& local) noexcept {
  const auto [first, last] = services_.equal_range(service);
  const auto found = std::find_if(first, last, [&](const auto& entry) { return entry.second.hears_at(local); });
  return found != last ? found->second.listener : nullptr;
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
  while (!timers_.empty() && timers_.begin()->first <= now) timers_.begin()->second->on_timer(now);
  sweep();
  if (!timers_.empty()) link_.set_deadline(timers_.begin()->first);
}

void Manager::disconnect_all() noexcept {
  for (const auto& [id, connection] : connections_) connection->release();
}

void Manager::on(const Req& req, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* known = find_passive(req.local_comm_id, remote, false)) return known->on(req);
  Listener* listener = find_listener(req.service_id, local);
  if (listener == nullptr && !may_wait_for(req.service_id)) {
    return reject(local, remote, transaction, req.local_comm_id, About::kReq, RejectReason::kInvalidServiceId);
  }
  // IBTA 12.9.8.3.1: the peer's queue pair is already connected here, so the peer must have forgotten that connection.
  if (Connection* stale = find(Key{Key::Kind::kQueuePair, remote, req.local_qpn, req.local_ca_guid})) {
    stale->disconnect();
    return reject(local, remote, transaction, req.local_comm_id, About::kReq, RejectReason::kStaleConnection);
  }
  Connection& connection = add(local, remote, nullptr);
  connection.on_first(req, transaction);
  if (listener == nullptr) return wait_for_listener(connection);
  offer(connection, *listener);
}

void Manager::on(const SidrReq& req, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* known = find_passive(req.request_id, remote, true)) return known->on(req);
  Listener* listener = find_listener(req.service_id, local);
  const bool waits = listener == nullptr && may_wait_for(req.service_id);
  Connection& connection = add(local, remote, nullptr);
  connection.on_first(req, transaction);
  if (waits) return wait_for_listener(connection);
  if (listener == nullptr) {
    connection.reject(RejectReason::kInvalidServiceId, {});
    return connection.enter(Connection::State::kClosed);
  }
  offer(connection, *listener);
}

void Manager::on(const Rep& rep, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* connection = find(rep.remote_comm_id, remote, transaction)) return connection->on(rep);
  if (find(rep.remote_comm_id, remote) != nullptr) return;
  reject(local, remote, transaction, rep.local_comm_id, About::kRep, RejectReason::kInvalidCommId);
}

void Manager::on(const Rej& rej, std::uint64_t transaction, const Gid&, const Gid& remote) {
  Connection* connection = find(rej.remote_comm_id, remote, transaction);
  // A peer that gave up before it had our answer knows only its own identifier.
  if (connection == nullptr && rej.reason == RejectReason::kTimeout) {
    connection = find_passive(rej.local_comm_id, remote, false);
    if (connection != nullptr && connection->transaction_ != transaction) return;
  }
  if (connection != nullptr) connection->on(rej);
}

void Manager::on(const Dreq& dreq, std::uint64_t transaction, const Gid& local, const Gid& remote) {
  if (Connection* connection = find(dreq.remote_comm_id, remote)) return connection->on(dreq, transaction);
  // Gone here already: the peer need not ask again.
  link_.send(local, remote, encode({transaction, Drep{dreq.remote_comm_id, dreq.local_comm_id}}));
}

void Manager::on(const Mra& mra, std::uint64_t transaction, const Gid&, const Gid& remote) {
  if (Connection* connection = find(mra.remote_comm_id, remote, transaction)) connection->on(mra);
}

void Manager::on(const Rtu& rtu, std::uint64_t transaction, const Gid&, const Gid& remote) {
  if (Connection* connection = find(rtu.remote_comm_id, remote, transaction)) connection->on(rtu);
}

// Peers answer a disconnection that crosses their own in the transaction of either, so the identifiers alone decide.
void Manager::on(const Drep& drep, std::uint64_t, const Gid&, const Gid& remote) {
  if (Connection* connection = find(drep.remote_comm_id, remote)) connection->on(drep);
}

void Manager::on(const SidrRep& rep, std::uint64_t transaction, const Gid&, const Gid& remote) {
  if (Connection* connection = find(rep.request_id, remote, transaction)) connection->on(rep);
}

}  // namespace fairlead::cm
