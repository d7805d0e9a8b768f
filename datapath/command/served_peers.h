// The sessions of a service, without its engine: what the engine's events mean to them, and who may begin one.
//
// Owns the sessions, what they count, and the images of code that they share. Threads: stats(), tenants(),
// set_tenants() and drain() from any; all else one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datapath/command/resume/lost_sessions.h"
#include "datapath/command/served_peer.h"
#include "fairlead/command_service.h"
#include "fairlead/peer.h"

namespace fairlead::datapath::command {

class ServedPeers {
 public:
  using Left = ServedPeer::Left;

  /// `max_message_bytes`: of the engine. `time`, `windows`: see ServedPeer.
  /// Whether the principal has a key yet.
  using Knows = std::function<bool(const std::string& principal)>;
  ServedPeers(fairlead::command::ServiceConfig config, std::size_t max_message_bytes,
              TimeSource time = &std::chrono::steady_clock::now, Windows* windows = nullptr, Knows knows = nullptr);
  ~ServedPeers() { stop(); }
  ServedPeers(const ServedPeers&) = delete;
  ServedPeers& operator=(const ServedPeers&) = delete;

  void handle(const Peer& peer, Event event);
  /// Of those without threads of their own: what is left to do, in the one that was heard of last, or in any.
  Left run_latest();
  Left run_all();
  /// Lets go of sessions whose last command has come to its end, of those whose clients do not come back, and of who
  /// says that one is its own and does not show it.
  void drop_ended();
  /// Ends all. Idempotent.
  void stop() noexcept;

  [[nodiscard]] fairlead::command::ServiceStats stats() const;
  [[nodiscard]] std::vector<fairlead::command::TenantStats> tenants() const { return tenants_.stats(); }
  [[nodiscard]] const std::vector<fairlead::command::ServedDevice>& devices() const noexcept { return devices_; }
  Status set_tenants(std::vector<fairlead::command::Tenant> tenants);
  void drain() noexcept { draining_.store(true); }

 private:
  using Served = std::pair<Peer, std::unique_ptr<ServedPeer>>;

  [[nodiscard]] ServedPeer* session_of(const Peer& peer);
  void begin(const Peer& peer);
  /// Its peer has gone.
  void lose(Served served, const Status& why);
  void leave(std::unique_ptr<ServedPeer> session);
  void end_lost();

  // Of who says that a session is its own (served_resume.cc).
  struct Resuming {
    Peer peer;
    SessionId id{};
    Attempt attempt;
    std::chrono::steady_clock::time_point since;
  };
  /// False: the peer begins otherwise.
  [[nodiscard]] bool hear_resuming(const Peer& peer, const Event& event);
  void challenge(const Peer& peer, const ResumeBody& asked);
  void go_on(Resuming resuming, const MessageHeader& header, Bytes body);
  /// Of those who have shown nothing for too long.
  void end_attempts();
  /// What became of one that is not kept.
  [[nodiscard]] Status no_session(const SessionId& id, const std::string& principal) const;
  [[nodiscard]] ServedPeer* kept_session(const SessionId& id, const std::string& principal);
  [[nodiscard]] std::unique_ptr<ServedPeer> take_from_peer(const SessionId& id);
  void turn_away(Peer peer, const Status& why);
  void count_sessions() noexcept;

  const fairlead::command::ServiceConfig config_;
  const std::vector<fairlead::command::ServedDevice> devices_;
  const ServerSession::Terms terms_;
  const TimeSource time_;
  Windows* const windows_;
  const Knows knows_;
  const std::shared_ptr<ModuleCache> modules_ = std::make_shared<ModuleCache>(config_.module_cache_bytes);
  ServiceCounters counters_;
  Turnstiles turnstiles_;  // of the devices, if they are shared
  Tenants tenants_;
  std::list<Served> sessions_;
  std::list<Served>::iterator latest_ = sessions_.end();  // whose message came last
  std::vector<std::unique_ptr<ServedPeer>> leaving_;      // their threads run a last command
  std::vector<Peer> turned_away_;                         // until they have gone
  LostSessions lost_;
  std::list<Resuming> resuming_;  // who came first is the first
  std::atomic<std::uint64_t> count_{0}, leaving_count_{0}, away_count_{0}, resumed_{0};
  std::atomic<bool> draining_{false};
};

}  // namespace fairlead::datapath::command
