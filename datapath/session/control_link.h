// A session's control connection: dialing it, watching it, what is said and heard on it, and signs of life.
//
// Active: the addresses of a host are tried one after the other (dialer.h). Passive: it stands from the beginning.
// Frames are the session's to understand. It knows no phases: once it is lost it stays so. Threads: the driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/session/control_channel.h"
#include "datapath/session/dialer.h"
#include "datapath/session/session_host.h"

namespace fairlead::datapath {

/// The session, as its control connection sees it.
class LinkUser {
 public:
  /// Active: an address answered.
  virtual void link_up() = 0;
  /// Active: none did. The words name the addresses.
  virtual void link_refused(const Status& why) = 0;
  /// The peer said this. The link must not be closed from within.
  virtual void link_heard(const control::Frame& frame) = 0;
  /// It ended, and everything that the peer said was heard.
  virtual void link_lost(const Status& why) = 0;

 protected:
  ~LinkUser() = default;
};

class ControlLink {
 public:
  ControlLink(SessionHost& host, LinkUser& user) : host_(host), user_(user), last_heard_(host.now()) {}

  /// Active: to the first of these numeric addresses that answers until `deadline`.
  void dial(std::vector<std::string> addresses, std::uint16_t port, Clock::time_point deadline);
  /// Passive: over this stream.
  void adopt(std::unique_ptr<ControlStream> stream);
  /// Dropped without a word if there is no connection. May be called in the middle of anything: what cannot be sent
  /// shows later, by overrun() or link_lost().
  void send(const control::Frame& frame);
  /// Lets go of the connection. Nobody is told.
  void close() { let_go(); }

  /// What host().watch_control() asked for has come.
  void on_ready(std::uint32_t epoll_events);
  /// Frames have arrived that the last on_ready() left for the next.
  [[nodiscard]] bool pending() const noexcept { return channel_ != nullptr && channel_->pending(); }
  /// The next address, if this one takes more than its share of the time.
  void check_dialing(Clock::time_point now);
  /// The peer gave a sign of life on its path.
  void live() noexcept { live_ = true; }
  /// Whether the peer has been silent for peer_timeout, and a third of that since it was asked for a sign of life: what
  /// was not looked at for long, because this process stood still, has not been silent.
  [[nodiscard]] bool check_silence(Clock::time_point now);

  /// There is a connection, or it is being made.
  [[nodiscard]] bool exists() const noexcept { return channel_ != nullptr; }
  [[nodiscard]] bool dialing() const noexcept { return channel_ != nullptr && channel_->connecting(); }
  /// The peer lets too much of ours lie.
  [[nodiscard]] bool overrun() const noexcept { return overrun_; }
  /// Of a connection that exists.
  [[nodiscard]] const ControlStream& stream() const noexcept { return channel_->stream(); }

 private:
  void try_next();
  void next_after(const Status& why);
  void watch();
  void hear(Clock::time_point now) noexcept;
  std::unique_ptr<ControlChannel> let_go();

  SessionHost& host_;
  LinkUser& user_;
  Dialer dialer_;
  std::unique_ptr<ControlChannel> channel_;
  std::uint32_t watched_ = 0;  // epoll events asked for
  bool overrun_ = false;
  Clock::time_point last_heard_;
  bool live_ = false;  // heard of on its path since the last check
  // Since it was heard last:
  std::optional<Clock::time_point> first_ping_, last_ping_;
  bool silent_ = false;  // at the last check; what has come since was read
};

}  // namespace fairlead::datapath
