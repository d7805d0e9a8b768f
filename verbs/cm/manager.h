// The communication manager of a device: its connections, its listeners, and which of them a MAD is for.
//
// Threads: none of its own. One lock, the owner's, guards a manager and all that it owns; Link is called and users are
// told under it.
// Errors: a MAD that is malformed, unexpected or from a stranger changes nothing; requests for a service that nobody
// listens to are rejected, disconnections of unknown connections confirmed. A service that just ended may begin again:
// programs that take one connection per listener have their next client asking before they listen, so its request
// waits.
#pragma once

#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "verbs/cm/connection.h"

namespace fairlead::cm {

/// What carries MADs between QP1 and QP1, and the time.
class Link {
 public:
  virtual void send(const Gid& from, const Gid& to, const MadBytes& mad) noexcept = 0;
  [[nodiscard]] virtual Nanos now() const noexcept = 0;
  /// There must be a run_timers() at this time.
  virtual void set_deadline(Nanos at) noexcept = 0;

 protected:
  ~Link() = default;
};

class Listener {
 public:
  /// A request came; its message is in the connection. Whoever is returned is told the rest; null: no room, the peer
  /// may ask again.
  virtual User* on_request(Connection& connection) noexcept = 0;

 protected:
  ~Listener() = default;
};

class Manager {
 public:
  Manager(Link& link, std::uint64_t ca_guid, std::uint64_t seed);

  /// Alive until the user releases it.
  Connection& open(const Gid& local, const Gid& remote, User& user);
  /// At one address, or at all of the device (null GID). False when the service is taken there.
  bool listen(std::uint64_t service, const Gid& local, Listener& listener);
  void unlisten(std::uint64_t service, Listener& listener) noexcept;

  void on_mad(const Gid& local, const Gid& remote, std::span<const std::byte> bytes);
  void run_timers();
  /// Best effort at the end of the process: what is established is disconnected, once.
  void disconnect_all() noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return connections_.size(); }

  // For connections.
  void send(const Gid& from, const Gid& to, const MadBytes& mad) noexcept { link_.send(from, to, mad); }
  [[nodiscard]] Link& link() const noexcept { return link_; }
  [[nodiscard]] Nanos now() const noexcept { return link_.now(); }
  void set_deadline(Nanos at) noexcept { link_.set_deadline(at); }
  [[nodiscard]] std::uint64_t ca_guid() const noexcept { return ca_guid_; }
  [[nodiscard]] std::uint64_t new_transaction() { return random_(); }

 private:
  struct Service {
    std::uint64_t id = 0;
    Gid local;  // null: any
    Listener* listener = nullptr;
  };

  struct Ended {
    std::uint64_t id = 0;
    Nanos until = 0;  // may begin again before
  };

  Connection& add(const Gid& local, const Gid& remote, User* user);
  [[nodiscard]] Connection* find(std::uint32_t comm_id, const Gid& remote) noexcept;
  [[nodiscard]] Connection* find_passive(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept;
  [[nodiscard]] Listener* find_listener(std::uint64_t service, const Gid& local) noexcept;
  [[nodiscard]] Connection* find_stale(const Req& req, const Gid& remote) noexcept;
  void reject(const Gid& local, const Gid& remote, std::uint64_t transaction, std::uint32_t remote_comm_id, About about,
              RejectReason reason) noexcept;
  void sweep();
  [[nodiscard]] bool may_begin_again(std::uint64_t service) noexcept;
  void offer(Connection& connection, Listener& listener);

  // One per message; `local` is where it arrived.
  void on(const Req& req, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Mra& mra, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Rej& rej, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Rep& rep, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Rtu& rtu, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Dreq& dreq, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const Drep& drep, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const SidrReq& req, std::uint64_t transaction, const Gid& local, const Gid& remote);
  void on(const SidrRep& rep, std::uint64_t transaction, const Gid& local, const Gid& remote);

  Link& link_;
  const std::uint64_t ca_guid_;
  std::mt19937_64 random_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Connection>> connections_;  // by our identifier
  std::vector<Service> services_;
  std::vector<Ended> ended_;
};

}  // namespace fairlead::cm
