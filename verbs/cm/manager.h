// The communication manager of a device: its connections, its listeners, and which of them a MAD is for.
//
// Threads: none of its own. One lock, the owner's, guards a manager and all that it owns; Link is called and users are
// told under it.
// Errors: a MAD that is malformed, unexpected or from a stranger changes nothing; requests for a service that nobody
// listens to are rejected, disconnections of unknown connections confirmed. A service that just ended may begin again:
// programs that take one connection per listener have their next client asking before they listen, so its request
// waits.
// Limits: kMostWaiting requests wait so, the next are rejected; of the connections that their users have released and
// that end by their timers, the last kMostLeft are kept. The rest is as many as the program and its backlogs take. A
// MAD finds its connection by a key, a deadline by its order.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <unordered_map>
#include <utility>
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
  /// Where processes share an address: with what upper byte the identifiers of this one's connections begin, by which
  /// the answers find it (verbs/soft/port/udp/shared_address.h).
  [[nodiscard]] virtual std::optional<std::uint8_t> place() const noexcept { return std::nullopt; }

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

/// Which addresses a listener at all of them means.
enum class Family : std::uint8_t { kAny, kIpv4, kIpv6 };

[[nodiscard]] inline bool hears(Family family, const Gid& address) noexcept {
  return family == Family::kAny || (family == Family::kIpv4) == address.is_ipv4();
}

class Manager {
 public:
  static constexpr std::size_t kMostWaiting = 256;
  static constexpr std::size_t kMostLeft = 4096;

  Manager(Link& link, std::uint64_t ca_guid, std::uint64_t seed);

  /// Alive until the user releases it.
  Connection& open(const Gid& local, const Gid& remote, User& user);
  /// At one address, or at all of the device (null GID) of a family. False when the service is taken there.
  bool listen(std::uint64_t service, const Gid& local, Listener& listener, Family family = Family::kAny);
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
  [[nodiscard]] std::uint64_t ca_guid() const noexcept { return ca_guid_; }
  [[nodiscard]] std::uint64_t new_transaction() { return random_(); }
  /// The deadline has changed from `before`.
  void set_timer(Connection& connection, Nanos before);
  /// Before and after a change of state.
  void forget_keys(Connection& connection);
  void remember_keys(Connection& connection);
  /// Released, and to end by its timer.
  void leave(Connection& connection);

 private:
  struct Service {
    Gid local;  // null: any
    Family family = Family::kAny;
    Listener* listener = nullptr;

    [[nodiscard]] bool hears_at(const Gid& address) const noexcept;
    [[nodiscard]] bool overlaps(const Service& other) const noexcept;
  };

  // What a peer calls a connection.
  struct Key {
    enum class Kind : std::uint8_t { kRequest, kDatagramRequest, kQueuePair };
    Kind kind = Kind::kRequest;
    Gid remote;
    std::uint32_t number = 0;   // the peer's identifier, or queue pair
    std::uint64_t ca_guid = 0;  // of a queue pair
    friend bool operator==(const Key&, const Key&) noexcept = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  static Key request_key(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept;
  /// Of a connection as it is now: each key and whether it has it.
  static std::array<std::pair<Key, bool>, 2> keys_of(const Connection& connection) noexcept;

  Connection& add(const Gid& local, const Gid& remote, User* user);
  [[nodiscard]] Connection* find(std::uint32_t comm_id, const Gid& remote) noexcept;
  /// Also of this transaction.
  [[nodiscard]] Connection* find(std::uint32_t comm_id, const Gid& remote, std::uint64_t transaction) noexcept;
  [[nodiscard]] Connection* find(const Key& key) noexcept;
  [[nodiscard]] Connection* find_passive(std::uint32_t remote_comm_id, const Gid& remote, bool datagram) noexcept;
  [[nodiscard]] Listener* find_listener(std::uint64_t service, const Gid& local) noexcept;
  void reject(const Gid& local, const Gid& remote, std::uint64_t transaction, std::uint32_t remote_comm_id, About about,
              RejectReason reason) noexcept;
  void sweep();
  /// Whether a request may wait for this service to begin again.
  [[nodiscard]] bool may_wait_for(std::uint64_t service);
  void wait_for_listener(Connection& connection);
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
  std::unordered_multimap<Key, Connection*, KeyHash> by_key_;
  std::set<std::pair<Nanos, Connection*>> timers_;
  std::vector<std::uint32_t> closed_;   // to be deleted where none is at work
  std::vector<std::uint32_t> waiting_;  // for a listener, or did
  std::deque<std::uint32_t> left_;
  std::unordered_multimap<std::uint64_t, Service> services_;
  std::unordered_map<std::uint64_t, Nanos> ended_;  // services that may begin again until then
};

}  // namespace fairlead::cm
