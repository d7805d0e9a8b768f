// The sessions of an engine, of all its lanes: who may come in, who gives way, and what those that ended came to.
//
// A connection is a stranger until its peer has said hello; then it is admitted or turned away. Limits hold for the
// engine, whichever lanes its sessions are in. Who is to give way counts no more at once, and is ended by its own lane.
// Owner: the engine. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "datapath/engine/line_limit.h"
#include "datapath/session/session.h"
#include "fairlead/config.h"
#include "fairlead/engine.h"

namespace fairlead::datapath {

class SessionRegister {
 public:
  using Session = std::shared_ptr<SessionImpl>;

  /// `config` outlives it.
  explicit SessionRegister(const EngineConfig& config) noexcept : config_(config) {}

  /// One that we begin. kResourceExhausted: there are as many as there may be.
  Status begin(const Session& session);
  /// One that connected to us. Its lane ends who is returned, the oldest of too many strangers, with these words.
  struct GivesWay {
    Session session;  // null: nobody
    Status why;
  };
  [[nodiscard]] GivesWay meet(const Session& stranger);
  /// It has said hello as `principal` (empty: anonymous). kResourceExhausted: it is turned away.
  /// `window`: what the session may have undelivered, cut to what its principal has left (max_principal_pending_*).
  Status admit(const SessionImpl& session, const std::string& principal, CreditWindow::Limits& window,
               GivesWay& gives_way);
  /// It is ready: seen by all(), if a peer began it.
  void ready(const Session& session);
  /// Its control connection broke, and it waits for another.
  [[nodiscard]] GivesWay cut(const SessionImpl& session);
  void resumed(const SessionImpl& session) noexcept;
  /// The end, however far it got.
  void closed(const SessionImpl& session, SessionHost::Ended how);
  void refused() noexcept { handshakes_refused_.fetch_add(1, std::memory_order_relaxed); }
  /// Forgets them all.
  void clear();

  /// Those that we began, and those of peers that are ready.
  [[nodiscard]] std::vector<Session> all() const;
  /// The one of that id which a peer began; null: there is none any more.
  [[nodiscard]] Session find(std::uint64_t id) const;
  void add_to(EngineStats& stats) const;

 private:
  struct Entry {
    Session session;
    std::string principal;
    bool seen = false;
    bool leaving = false;              // it gave way, and counts no more
    std::uint64_t cut = 0;             // if it is: a number that rises
    CreditWindow::Limits window = {};  // of one that a peer began: its share of what its principal may have undelivered
  };
  using Entries = std::vector<Entry>;

  [[nodiscard]] Entries::iterator entry_of(const SessionImpl& session);
  [[nodiscard]] GivesWay oldest_cut(const std::string& principal, std::string_view because);
  [[nodiscard]] std::size_t count(const std::function<bool(const Entry&)>& is) const;
  [[nodiscard]] bool is_full() const;
  /// `looked_at` is to be let go of outside of the lock: sessions take locks when they go.
  [[nodiscard]] CreditWindow::Limits left_to(const std::string& principal, std::vector<Session>& looked_at);
  [[nodiscard]] bool shares_windows() const noexcept {
    return config_.max_principal_pending_events != 0 || config_.max_principal_pending_bytes != 0;
  }
  [[nodiscard]] Status too_many() const;
  void say_stranger_failed(const SessionImpl& session);

  const EngineConfig& config_;
  std::atomic<std::uint64_t> handshakes_refused_{0};
  mutable std::mutex mutex_;      // guards what follows
  std::list<Session> strangers_;  // oldest first
  Entries entries_;
  /// Ended, and the application has not taken all that came: that counts as its principal's until it has.
  struct Remains {
    std::weak_ptr<SessionImpl> session;
    std::string principal;
    CreditWindow::Limits window;
  };
  std::vector<Remains> remains_;
  std::uint64_t last_cut_ = 0;
  LineLimit strangers_said_{std::chrono::seconds(1)};
  PeerStats ended_;
  std::uint64_t peers_connected_ = 0, peers_lost_ = 0, peers_failed_ = 0;
};

}  // namespace fairlead::datapath
