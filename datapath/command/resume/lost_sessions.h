// A service's sessions whose clients have lost their peers, and may come back: for how long, how many of a tenant's,
// and what became of those that are not kept any more, for clients that come too late.
//
// Owns the sessions. No peers, no clock. Threads: one at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datapath/command/served_peer.h"

namespace fairlead::datapath::command {

class LostSessions {
 public:
  using Clock = std::chrono::steady_clock;
  using Owned = std::unique_ptr<ServedPeer>;

  /// Each is kept for `time`, and at most so many of a tenant's.
  LostSessions(std::chrono::milliseconds time, std::size_t most) : time_(time), most_(most) {}
  ~LostSessions() { clear(); }
  LostSessions(const LostSessions&) = delete;
  LostSessions& operator=(const LostSessions&) = delete;

  /// Where a tenant has too many, the one that was lost first ends: it is given back. That may be this one.
  [[nodiscard]] Owned keep(Owned session, Clock::time_point now);
  /// Null: it is not here.
  [[nodiscard]] ServedPeer* find(const SessionId& id) noexcept;
  /// Its client is back.
  [[nodiscard]] Owned take(const SessionId& id) noexcept;
  /// Those that end now: their time is over, or `ends` says why.
  using Ends = std::function<std::optional<std::string>(const ServedPeer&)>;
  [[nodiscard]] std::vector<Owned> expire(Clock::time_point now, const Ends& ends);

  /// A session that does not wait for its client, or not any more, has ended; its client hears why, if it asks.
  void remember(const ServedPeer& session, std::string why);
  /// Empty: nobody knows.
  [[nodiscard]] std::string fate(const SessionId& id, std::string_view principal) const;

  [[nodiscard]] std::size_t size() const noexcept { return kept_.size(); }
  /// Without threads of their own: each has a turn.
  template <typename Turn>
  void for_each(Turn turn) {
    for (Lost& lost : kept_) turn(*lost.session);
  }
  void clear() noexcept;

 private:
  struct Lost {
    Owned session;
    Clock::time_point since;
  };
  struct Fate {
    SessionId id{};
    std::string principal, why;
  };
  using Place = std::list<Lost>::iterator;
  [[nodiscard]] Owned let_go(Place lost) noexcept;

  const std::chrono::milliseconds time_;
  const std::size_t most_;
  std::list<Lost> kept_;  // the one that was lost first is the first
  std::deque<Fate> fates_;
};

}  // namespace fairlead::datapath::command
