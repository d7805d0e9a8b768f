// A flow's path: choosing a transport, offering it, proving that it carries data, noticing its death, fencing it.
//
// The active end chooses and numbers paths (epochs) and leads recovery; the passive end answers. A path is used after
// both ends have seen a WRITE and a message arrive that are as large as packets get. When it dies: fence first, then
// replay. The active end closes its path, drains it, and sends Fence{epoch, received}; the passive end does the same
// and answers FenceAck{epoch, received}. What `received` leaves open is said again on the next path.
//
// While a path is in use the active end looks now and then whether a better one works: it is set up and proved beside
// the one in use, which is then fenced as if it had died, so that the better one takes over at once.
//
// No sockets, no clock, no threads of its own: what it needs is its host's. Threads: the driver.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datapath/flow/choice.h"
#include "datapath/flow/figures.h"
#include "datapath/flow/in_flight.h"
#include "datapath/flow/measurement.h"
#include "datapath/flow/open_transport.h"
#include "datapath/flow/path_state.h"
#include "datapath/flow/trials.h"
#include "datapath/lane/lane.h"
#include "datapath/protocol/frames.h"
#include "datapath/region/domain_book.h"
#include "datapath/region/remote_region.h"
#include "transport/device.h"

namespace fairlead::datapath {

/// The id of the write that proves a path: it is in no InFlight, since a device may never report it.
inline constexpr std::uint64_t kProbeId = 0;

/// A path, what has been seen of it, and what it holds.
struct PathSlot {
  std::unique_ptr<Path> path;
  PathState state = PathState::kNone;
  Capabilities can;                // the device's, as far as the peer's end goes along
  DomainBook* domain = nullptr;    // whose memory it uses and gives; null: the device's own
  InFlight in_flight;              // all but the probe
  std::size_t transport = 0;       // ours
  std::size_t peer_transport = 0;  // theirs
  std::size_t candidate = 0;       // active: which of the set's
  std::uint64_t epoch = 0;
  control::Key peer_probe;
  std::uint32_t peer_probe_bytes = 0;  // 0: of a release that knows of eight, and of no hello with bytes
  Clock::time_point opened_at;

  // Proofs.
  bool answered = false;   // active: the peer has, since when opened_at counts
  bool connected = false;  // the transport said on_ready
  bool hello_sent = false;
  bool probe_posted = false;  // alone: the hello did not fit behind it
  bool hello_received = false;
  bool write_proved = false;  // our WRITE reached the peer's probe
  bool write_failed = false;  // it was refused or did not end: staged mode
  bool said_ready = false;    // to the peer, which uses no path before
  bool peer_ready = false;

  bool settled = false;           // what it held came back
  Clock::time_point fence_due{};  // by when the other end is to have said its word of that

  // Its death, told by the transport.
  bool down = false;
  Code down_code = Code::kOk;
  std::string down_reason;
  Clock::time_point down_at;

  bool carried = false;  // anything of its user's, to the other end or from there

  // Whether it moves.
  bool moved = false;  // something completed since last_moved was set
  Clock::time_point last_moved{};
  Clock::time_point in_use_since{};
  Clock::time_point last_progress;  // the same, or when nothing was under way
  Clock::time_point probed_at{};    // when the peer was asked whether it is alive, because nothing moved
  bool probe_answered = false;

  // Active: what it carries, as it was measured when it came to be used, and how that is measured now.
  std::optional<Figure> figure;
  std::optional<Measurement> measurement;
  std::uint64_t measurements = 0;  // that were begun

  void on_measured(const PostedRequest& request, Code code, Clock::time_point now) {
    moved = true;
    if (!measurement || request.sequence != measurements) return;
    code == Code::kOk ? measurement->ended(now) : measurement.reset();
  }
  void on_hello(std::uint64_t of_epoch) noexcept { hello_received = hello_received || of_epoch == epoch; }
  void on_probe(Code code) noexcept {
    (code == Code::kOk ? write_proved : write_failed) = true;
    moved = true;
  }
};

/// What paths stand on: the session and its engine.
class PathHost {
 public:
  [[nodiscard]] virtual std::vector<OpenTransport>& transports() noexcept = 0;
  /// What paths were measured to carry; null: nobody asks.
  [[nodiscard]] virtual Figures* figures() noexcept { return nullptr; }
  /// The domain of paths to this peer; null: the device's own. Errors: there is none to be had.
  [[nodiscard]] virtual Result<DomainBook*> domain_at(std::size_t transport) = 0;
  /// Whether the control connection stands, over which paths are set up.
  [[nodiscard]] virtual bool linked() const noexcept = 0;
  /// The addresses of both ends, and how long a peer may be silent.
  [[nodiscard]] virtual PathConfig path_config() = 0;
  [[nodiscard]] virtual Clock::time_point now() const noexcept = 0;
  [[nodiscard]] virtual std::string who() const = 0;
  /// Ends the session; it shuts the set.
  virtual void fail(Status status) = 0;
  /// For tests: `event` comes in `state`.
  virtual void path_event(PathState state, PathEvent event) noexcept = 0;

 protected:
  ~PathHost() = default;
};

/// Who sends over the path in use: a flow.
class PathUser {
 public:
  /// Who hears of what paths carry. It tells the set that one is ready or down.
  [[nodiscard]] virtual PathEvents& path_events() noexcept = 0;
  virtual void send_frame(const control::Frame& frame) = 0;
  /// None of the candidates works, nor will soon.
  virtual void no_path(Status why) = 0;
  /// A path is proved at both ends: slot().
  virtual void path_in_use() = 0;
  /// The path that was in use is not any more.
  virtual void path_lost() = 0;
  /// It has nothing to do, and neither has the path in use.
  [[nodiscard]] virtual bool is_idle() const noexcept { return true; }
  /// A path's figures are there, or are new.
  virtual void path_measured() {}
  /// Something of what came over the path goes on here without it, and must end before the path counts as drained.
  [[nodiscard]] virtual bool path_lingers() const noexcept { return false; }
  /// What a path held and will not report comes back.
  virtual void path_gone(InFlight& held) = 0;
  /// Sequenced messages that came from the peer, and of ours those that it acknowledged.
  [[nodiscard]] virtual std::uint64_t received() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t acknowledged() const noexcept = 0;
  /// Both ends are fenced: what the peer got of ours. False, with words, if that cannot be.
  [[nodiscard]] virtual bool apply_received(std::uint64_t received, std::string& why) = 0;

 protected:
  ~PathUser() = default;
};

class PathSet {
 public:
  struct Rules {
    bool failover = true;
    std::chrono::milliseconds path_timeout{0};
    bool urgent = false;  // PathConfig::urgent
    std::chrono::milliseconds peer_timeout{0};
    bool spare = false;     // others go on if it is left
    bool measured = false;  // it goes by figures
    TrafficClass traffic = TrafficClass::kBulk;
  };
  PathSet(PathHost& host, PathUser& user, bool active, Rules rules)
      : host_(host), user_(user), rules_(rules), active_(active), figures_(active ? host.figures() : nullptr) {}

  /// Active, without a path: sets out with the best of these; there is at least one.
  /// Gives them in the order in which they are tried first: by figures, the one that is known to be the best comes
  /// first.
  const std::vector<Candidate>& begin(std::vector<Candidate> candidates);
  /// Passive: what the peer may offer a path over.
  void expect(std::vector<Offer> peer_offers) { peer_offers_ = std::move(peer_offers); }
  /// The peer's version of the protocol has paths that are set up beside the one in use.
  void allow_beside() noexcept { beside_allowed_ = true; }
  /// The session ends: the path in use is good enough.
  void stay() noexcept { stays_ = true; }

  /// A frame of the peer's that speaks of paths. False: it does not.
  bool handle(const control::Frame& frame);
  /// The peer answered a ping.
  void peer_answered() noexcept;

  // From the transport.
  /// Null: it is one of the past.
  [[nodiscard]] PathSlot* find(const Path& path) noexcept;
  /// The peer sent more than a hello over it. False: it may not.
  [[nodiscard]] bool may_carry(PathSlot& slot) {
    return (&slot == slot_.get() && slot.said_ready && slot.peer_ready) || begins_to_carry(slot);
  }
  void on_ready(PathSlot& slot);
  void on_down(PathSlot& slot, Code code, std::string_view reason);

  void advance(Clock::time_point now);
  /// A path in use on which nothing moves, though the peer lives, is left where there is another. The active end alone
  /// knows whether there is, so the passive one asks it.
  void check_progress(Clock::time_point now);
  /// A transfer that was cancelled or is late waits for its memory `since` then: a path that does not move is left for
  /// it; and one that moves, but has not ended what is known to be on it `held_since` then, in the end.
  void take_back_memory(Clock::time_point since, Clock::time_point now,
                        std::optional<Clock::time_point> held_since = std::nullopt);
  /// The session ends: no more paths, and this one drains.
  void shut();
  [[nodiscard]] bool drained() const noexcept {
    return (slot_ == nullptr || slot_->path->drained()) && (beside_ == nullptr || beside_->path->drained());
  }
  /// Lets go of all paths. Their destruction waits for bury(), which is never called from inside their callbacks.
  void drop_all();
  void bury() noexcept { dead_.clear(); }

  [[nodiscard]] PathState state() const noexcept { return slot_ != nullptr ? slot_->state : PathState::kNone; }
  /// The path in use; null: none is.
  [[nodiscard]] PathSlot* in_use() noexcept { return state() == PathState::kInUse && !shut_ ? slot_.get() : nullptr; }
  /// The path, if messages may be posted to it.
  [[nodiscard]] PathSlot* open() noexcept { return state() < PathState::kClosing && !shut_ ? slot_.get() : nullptr; }
  [[nodiscard]] PathSlot* slot() noexcept { return slot_.get(); }
  /// The one that is set up beside it; null: none is.
  [[nodiscard]] PathSlot* beside() noexcept { return beside_.get(); }
  /// Why this path and none of the others.
  [[nodiscard]] std::string explain() const;
  /// Why the last path was left.
  [[nodiscard]] std::pair<Code, std::string_view> left_because() const noexcept { return {fence_code_, fence_reason_}; }
  /// Whether it was left for a better one.
  [[nodiscard]] bool left_for_better() const noexcept { return left_for_better_; }

 private:
  void handle_offer(const control::PathOffer& offer);
  void handle_answer(const control::PathAnswer& answer);
  void handle_ready(const control::PathReady& ready);
  void handle_down(const control::PathDown& down);
  void handle_fence(const control::Fence& fence);
  void handle_fence_ack(const control::FenceAck& ack);
  void begin_path();
  void no_path_left();
  /// In the path's domain, as all that the peer may reach by it.
  [[nodiscard]] Probe& probe_of(const PathSlot& slot) const noexcept;
  Result<std::unique_ptr<PathSlot>> open_path(std::size_t transport, std::size_t peer_transport, PathConfig config);
  /// The same over one of the candidates, and offers it to the peer.
  Result<std::unique_ptr<PathSlot>> offer_path(std::size_t candidate);
  void use(std::unique_ptr<PathSlot> slot) noexcept;
  void prove(PathSlot& slot);
  void check_proved(PathSlot& slot);
  [[nodiscard]] bool begins_to_carry(PathSlot& slot);
  void candidate_failed(PathSlot& slot, Code code, const std::string& reason);
  void exclude_and_go_on(const std::string& reason);
  void say_down(std::uint64_t epoch, Code code, const std::string& reason);
  void drop() noexcept;
  void died(Code code, const std::string& reason);
  void leave(Code code, const std::string& reason, bool for_better);
  [[nodiscard]] std::chrono::milliseconds patience() noexcept;
  [[nodiscard]] bool moves_without(Clock::time_point since, Clock::time_point now) const noexcept;
  void close();
  void send_fence_ack(std::uint64_t peer_received);
  void await_fence(Clock::time_point now);
  void after_fence(std::uint64_t peer_received);
  void advance_setup(PathSlot& slot, Clock::time_point now);
  void settle() noexcept;
  void retire(std::unique_ptr<PathSlot> slot) noexcept;
  static void enter(PathSlot& slot, PathState state) noexcept;
  void saw(PathEvent event) noexcept { host_.path_event(state(), event); }
  void saw(const PathSlot* slot, PathEvent event) noexcept {
    host_.path_event(slot != nullptr ? slot->state : state(), event);
  }
  [[nodiscard]] PathSlot* slot_of(std::uint64_t epoch) noexcept;

  // path_beside.cc
  void look_for_better(Clock::time_point now);
  void give_up_beside(const std::string& reason);
  void advance_beside(Clock::time_point now);
  void take_over(const std::string& reason);
  void set_up_beside(std::size_t candidate);
  void promote();

  // path_measured.cc
  [[nodiscard]] bool measures() const noexcept { return rules_.measured && figures_ != nullptr; }
  [[nodiscard]] Figures::Way way_of(std::size_t candidate) const;
  [[nodiscard]] std::optional<Figure> figure_of(std::size_t candidate) const;
  void put_best_first();
  [[nodiscard]] bool is_preferred(std::size_t candidate) const;
  [[nodiscard]] bool may_measure(const PathSlot& slot) const noexcept;
  void look_by_figures(Clock::time_point now);
  void begin_measuring(PathSlot& slot);
  void measure(PathSlot& slot);
  void advance_measuring(PathSlot& slot, Clock::time_point now);
  void weigh_beside();
  void dismiss_beside(const std::string& reason);

  [[nodiscard]] std::string name_of(std::size_t candidate) const;

  PathHost& host_;
  PathUser& user_;
  const Rules rules_;
  const bool active_;
  bool shut_ = false;
  std::unique_ptr<PathSlot> slot_;
  std::unique_ptr<PathSlot> beside_;  // only while slot_ is in use, closing or fenced
  std::vector<std::unique_ptr<PathSlot>> dead_;
  bool beside_allowed_ = false;
  bool stays_ = false;
  std::uint64_t epoch_ = 0;       // of the last offer
  std::uint64_t slot_epoch_ = 0;  // of slot_, or of the last that was

  // Active.
  std::vector<Candidate> candidates_;
  Trials trials_;                              // of candidates_
  std::size_t candidate_ = 0;                  // the one in hand, or the last
  std::optional<Clock::time_point> begin_at_;  // no path is in hand: when the next one may be tried
  // Passive.
  std::vector<Offer> peer_offers_;
  bool fence_requested_ = false;      // the active end waits for our FenceAck
  std::uint64_t fence_received_ = 0;  // what it said in its Fence

  // Active, where it goes by figures.
  Figures* const figures_;
  std::string session_host_;  // where the peer is, as far as the session knows
  Clock::time_point look_at_{};
  unsigned put_off_ = 0;  // measurements in a row that came to nothing

  Code fence_code_ = Code::kOk;
  std::string fence_reason_;
  bool left_for_better_ = false;
};

}  // namespace fairlead::datapath
