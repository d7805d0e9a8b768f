// A session's control connection: dialing it, watching it, what is said and heard on it, and signs of life.
//
// Active: the peer's places are dialed, each a head start before the next (dialer.h). Passive: it stands from the
// beginning.
// Once both ends have greeted it outlives its connection (greeted()): frames are kept until the peer has heard them
// (kept_frames.h), and where a connection breaks, or is silent for too long, the session is told and another takes its
// place. The active end dials it, again and again, until the session gives up; the passive end waits for it. What the
// peer did not hear, and what is said meanwhile, is said then, a piece at a time. Frames are the session's to
// understand. It knows no phases. Threads: the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/session/control_channel.h"
#include "datapath/session/dialer.h"
#include "datapath/session/kept_frames.h"
#include "datapath/session/session_host.h"

namespace fairlead::datapath {

/// The session, as its control connection sees it.
class LinkUser {
 public:
  /// Active: an address answered.
  virtual void link_up() = 0;
  /// Active: none did; or, where the peer had answered before, nobody listens, nor at any other of its places. The
  /// words name the addresses.
  virtual void link_refused(const Status& why) = 0;
  /// The peer said this. The link must not be closed from within.
  virtual void link_heard(const control::Frame& frame) = 0;
  /// Whether it is to hear more now. What the peer says meanwhile waits; asked again at each turn.
  [[nodiscard]] virtual bool link_may_speak() const noexcept { return true; }
  /// It ended, and everything that came from it was heard. kPeerDied: the connection did, not what was said on it.
  virtual void link_lost(const Status& why) = 0;

 protected:
  ~LinkUser() = default;
};

class ControlLink {
 public:
  /// Bytes of ours that may lie unread, or unheard, before the peer counts as one that does not read.
  static constexpr std::size_t kMaxKept = ControlChannel::kMaxQueued;

  ControlLink(SessionHost& host, LinkUser& user) : host_(host), user_(user), last_heard_(host.now()) {}

  /// Active: to the first of these places that answers until `deadline`.
  void dial(std::vector<Place> places, Clock::time_point deadline);
  /// Passive: over this connection.
  void adopt(std::unique_ptr<ControlChannel> channel);
  /// Dropped without a word if there is no connection and none will take its place. May be called in the middle of
  /// anything: what cannot be sent shows later, by overrun() or link_lost().
  void send(const control::Frame& frame);
  /// The same for what is about this connection alone: it is not kept.
  void say(const control::Frame& frame);
  /// Lets go of the connection, for good. Nobody is told.
  void close();

  /// The greeting is over: the peer is there. `keeps`: both ends count and keep what they say from here on.
  void greeted(bool keeps) noexcept;
  /// Active: where the peer may be.
  [[nodiscard]] const Places& places() const noexcept { return places_; }
  /// Active, before the greeting is over or while it is_cut(): who answered is of no use; kNotFound: it is another
  /// engine. Another place is tried soon, or the next attempt made. False: there is none.
  bool is_useless(Status why);

  // --- connections that take the place of one that was lost
  /// How many of the peer's frames were heard.
  [[nodiscard]] std::uint64_t heard() const noexcept { return frames_.heard(); }
  /// Another connection is to take the place of the one that was lost: active: it is dialed from now on.
  void rejoin();
  /// It is being made, or waited for.
  [[nodiscard]] bool is_cut() const noexcept { return cut_; }
  /// Passive: `channel` takes the place of the connection, whatever became of that.
  void take_over(std::unique_ptr<ControlChannel> channel);
  /// The peer has shown who it is, and has heard so many of our frames: the rest is said again, as fast as it is read.
  /// False: that cannot be.
  [[nodiscard]] bool rejoined(std::uint64_t heard_there);
  /// The peer says that it has heard so many. False: that cannot be, or nothing is kept.
  [[nodiscard]] bool heard_there(std::uint64_t count) { return keeps_ && frames_.heard_there(count); }
  /// Lets go of the connection, which may be another session's.
  std::unique_ptr<ControlChannel> release();

  /// What host().watch_control() asked for has come.
  void on_ready(std::uint32_t epoll_events);
  /// on_ready() is to be called though nothing has come: it left frames for the next time, or the connection is not
  /// watched.
  [[nodiscard]] bool pending() const noexcept {
    return channel_ != nullptr && ((channel_->pending() && may_speak()) || !unwatched_because_.ok());
  }
  /// The next place, if those that are dialed have had their head start; the next attempt.
  void check_dialing(Clock::time_point now);
  /// The peer gave a sign of life on its path.
  void live() noexcept { live_ = true; }
  /// Whether the peer has been silent for peer_timeout, and a third of that since it was asked for a sign of life: what
  /// was not looked at for long, because this process stood still, has not been silent.
  [[nodiscard]] bool check_silence(Clock::time_point now);
  /// Where another can take its place: a connection is lost on which nothing answers for `patience`, and as long again
  /// after a ping.
  void check_answers(Clock::time_point now, Clock::duration patience);

  /// There is a connection, or it is being made.
  [[nodiscard]] bool exists() const noexcept { return channel_ != nullptr || dialing(); }
  [[nodiscard]] bool dialing() const noexcept { return !racing_.empty(); }
  /// The peer lets too much of ours lie.
  [[nodiscard]] bool overrun() const noexcept { return overrun_; }
  /// Of a connection that stands.
  [[nodiscard]] const ControlStream& stream() const noexcept { return channel_->stream(); }

 private:
  void try_next();
  void next_after(const Status& why);
  void give_up_place(const Status& why);
  void check_race();
  void stop_racing() noexcept;
  void attempt();
  void attempt_failed(const Status& why);
  void put(std::string_view wire, bool awaits_answer);
  void say_rest();
  /// There is something to be said again, on a connection that stands.
  [[nodiscard]] bool has_rest() const noexcept { return !cut_ && frames_.waiting(); }
  /// What the peer is yet to be told counts as what it lets lie.
  [[nodiscard]] bool lets_lie_too_much() const noexcept {
    return has_rest() && frames_.waiting_bytes() > ControlChannel::kReadMark;
  }
  [[nodiscard]] bool may_speak() const noexcept { return !lets_lie_too_much() && user_.link_may_speak(); }
  void watch();
  void hear(Clock::time_point now) noexcept;
  void heard_something() noexcept;
  void count(const control::Frame& frame) noexcept;
  void answered() noexcept {
    spoken_to_.reset();
    asked_.reset();
    unanswered_ = false;
  }
  void tell_heard();

  SessionHost& host_;
  LinkUser& user_;
  Places places_;
  Dialer dialer_;
  struct Racer {
    std::unique_ptr<ControlChannel> channel;
    std::size_t which = 0;  // the dialer's
  };
  std::vector<Racer> racing_;          // none of them stands yet; there is no other connection meanwhile
  std::optional<std::size_t> dialed_;  // active: the dialer's, of the connection
  std::unique_ptr<ControlChannel> channel_;
  std::uint32_t watched_ = 0;  // epoll events asked for
  Status unwatched_because_;   // of a connection: the next on_ready() tries again, and else ends it
  bool overrun_ = false;

  bool keeps_ = false;
  bool cut_ = false;
  KeptFrames frames_;
  std::uint64_t told_at_byte_ = 0;  // of the connection: when the peer was told how much was heard
  // Active: who answered is to greet until then; the attempts to reach the peer again, and since when all its places
  // refuse them.
  Clock::time_point greets_until_ = Clock::time_point::max();
  Status useless_because_;
  std::chrono::milliseconds pause_{0};
  Clock::time_point attempt_at_{}, attempt_until_{};
  std::optional<Clock::time_point> refused_since_;

  Clock::time_point last_heard_;
  bool live_ = false;  // heard of on its path since the last check
  // Since it was heard last, on its path or on the connection:
  std::optional<Clock::time_point> first_ping_, last_ping_;
  bool silent_ = false;  // at the last check; what has come since was read
  // Since something came on the connection: when it was first spoken to, and asked for an answer.
  std::optional<Clock::time_point> spoken_to_, asked_;
  bool unanswered_ = false;  // as silent_
};

}  // namespace fairlead::datapath
