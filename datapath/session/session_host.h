// What a session knows of the engine that it lives in.
//
// Owned by the sessions together with the engine's own handles. Threads: as each function says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datapath/flow/credit_window.h"
#include "datapath/flow/figures.h"
#include "datapath/flow/open_transport.h"
#include "datapath/flow/path_state.h"
#include "datapath/identity/principals.h"
#include "datapath/lane/event_queues.h"
#include "datapath/lane/lane.h"
#include "datapath/protocol/frames.h"
#include "datapath/region/regions.h"
#include "datapath/session/control_stream.h"
#include "datapath/session/session_phase.h"
#include "fairlead/config.h"
#include "transport/device.h"

namespace fairlead::datapath {

class ControlChannel;
class ControlLink;
class SessionImpl;

/// What a lane has for the paths of its sessions. Threads: the driver.
class PathGround {
 public:
  [[nodiscard]] virtual std::vector<OpenTransport>& transports() noexcept = 0;
  /// What paths of the lane's sessions were measured to carry; null: nobody asks.
  [[nodiscard]] virtual Figures* figures() noexcept { return nullptr; }
  /// For tests that count what happens to paths: an event comes in a state.
  virtual void path_event(PathState, PathEvent) noexcept {}

 protected:
  ~PathGround() = default;
};

class SessionHost : public PathGround {
 public:
  // Any thread.
  [[nodiscard]] virtual const EngineConfig& config() const noexcept = 0;
  [[nodiscard]] virtual Lane& lane() noexcept = 0;
  [[nodiscard]] virtual RegionTable& regions() noexcept = 0;
  /// Whom the engine knows.
  [[nodiscard]] virtual const Principals& principals() const noexcept = 0;
  [[nodiscard]] virtual EventQueues& queues() noexcept = 0;
  /// Whether this process got the engine by fork(): then nothing else is to be called.
  [[nodiscard]] virtual bool inherited() const noexcept = 0;
  /// ok, or why calls come to nothing.
  [[nodiscard]] virtual Status usable() const = 0;

  /// A number that no other engine has; 0: it is not told.
  [[nodiscard]] virtual std::uint64_t engine_id() const noexcept { return 0; }
  /// Who connected, and has said that it resumes a session of this host, begins here as a stranger.
  virtual void resume_here(std::unique_ptr<ControlChannel> channel, const control::Resume& resume) = 0;

  /// The time.
  [[nodiscard]] virtual Clock::time_point now() const noexcept = 0;
  /// A number nobody can guess; never 0.
  [[nodiscard]] virtual std::uint64_t random() = 0;

  // Driver.
  /// Begins a control connection to a numeric address. Errors as ControlStream::connected().
  virtual Result<std::unique_ptr<ControlStream>> dial(const std::string& numeric_host, std::uint16_t port) = 0;
  /// Opens what the peer's offers ask for and our configuration allows, so that every candidate can be registered.
  virtual void open_for_peer(const std::vector<Offer>& theirs) = 0;
  [[nodiscard]] virtual std::vector<Offer> offers() const = 0;
  /// Calls the link's on_ready() for these epoll events of its stream. Errors: of the `first` alone, no room.
  virtual Status watch_control(const ControlStream& stream, ControlLink& link, std::uint32_t events, bool first) = 0;
  virtual void unwatch_control(const ControlStream& stream) = 0;
  /// ok, or why a peer that has just said hello to us is turned away; `principal`: who it is. `window`: what it may
  /// have undelivered, which is made less where its principal has not so much left.
  [[nodiscard]] virtual Status admit_peer(const SessionImpl& session, const std::string& principal,
                                          CreditWindow::Limits& window) = 0;
  /// The session of that id which a peer began here, whose host may be another; null: there is none any more.
  [[nodiscard]] virtual std::shared_ptr<SessionImpl> find_session(std::uint64_t id) = 0;
  virtual void session_ready(SessionImpl& session) = 0;
  /// A peer's control connection broke, and its session waits for another; or, not `is_cut`, it has one again.
  virtual void session_cut(SessionImpl& session, bool is_cut) = 0;
  /// kFailed: it never became ready. Of one that a peer began the host says why.
  enum class Ended : std::uint8_t { kOrderly, kLost, kFailed };
  virtual void session_closed(SessionImpl& session, Ended how) = 0;
  virtual void handshake_refused() noexcept = 0;
  /// For tests that count what happens to sessions.
  virtual void session_event(SessionPhase, SessionEvent) noexcept {}

 protected:
  ~SessionHost() = default;
};

}  // namespace fairlead::datapath
