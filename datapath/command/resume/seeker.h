// How a client that lost its peer looks for the service again, over a new peer, and shows that the session there is its
// own (proof.h).
//
// Not bound to threads or to the steady clock; events are taken by who reads the session's. Threads: one at a time, but
// is_away() by who reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "datapath/command/resume/proof.h"
#include "fairlead/peer.h"
#include "fairlead/status.h"

namespace fairlead::datapath::command {

class Seeker {
 public:
  using Clock = std::chrono::steady_clock;
  using Dial = std::function<Result<Peer>()>;
  using Now = Clock::time_point (*)();
  /// What the client has of its channels.
  using Heard = std::function<std::vector<HeardBody>()>;

  /// `dial`: begins to connect to the service. It is sought for so long.
  Seeker(Dial dial, std::chrono::milliseconds within, Now now) : dial_(std::move(dial)), within_(within), now_(now) {}

  /// The service keeps the session, under this key. `most_early`: bytes of results that may come before it has said
  /// what it has, as the two cross apart.
  void keep(const SessionKey& key, std::uint64_t most_early) noexcept {
    key_ = key;
    most_early_ = most_early;
  }
  /// Whether a peer that went so is one to look for again.
  [[nodiscard]] bool is_loss(const Status& why) const noexcept;
  /// The peer is lost.
  void lose(Status why);
  [[nodiscard]] bool is_away() const noexcept { return away_; }

  /// Of the peer that is tried; waits so long at most, also where there is none.
  [[nodiscard]] Event next_event(Clock::duration most);
  /// Goes on after that. ok: nothing has come of it yet, or the client is back, and takes what there is; else the
  /// session has ended.
  [[nodiscard]] Status step(const Event& event, const Heard& heard);
  struct Back {
    Peer peer;
    std::vector<KeptBody> has;  // the service
    std::vector<Event> early;   // results that came before that
  };
  [[nodiscard]] std::optional<Back> take_back() noexcept;
  /// It is not tried any more. Also while who reads is in next_event().
  void close() noexcept;

 private:
  Status dial();
  Status hear(const Event& event, const Heard& heard);
  [[nodiscard]] bool is_early(const Event& event);
  void fail(Status why);
  void ask();
  void say(const std::vector<std::byte>& message);

  const Dial dial_;
  const std::chrono::milliseconds within_;
  const Now now_;
  std::optional<SessionKey> key_;
  bool away_ = false;
  Status lost_, failed_;  // why the peer was, and what the last attempt came to
  Clock::time_point until_{}, next_{};
  Clock::duration pause_{};
  std::optional<Peer> tried_;
  Clock::time_point tried_until_{};      // if it has not answered by then
  bool asked_ = false, proved_ = false;  // of that
  Attempt attempt_;
  std::vector<Event> early_;
  std::uint64_t most_early_ = 0, early_bytes_ = 0;
  std::optional<Back> back_;
};

}  // namespace fairlead::datapath::command
