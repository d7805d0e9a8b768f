// A session with one peer: it outlives the paths that carry it.
//
// Its life is in session_phase.h. The end that connected is "active": it chooses transports and leads recovery
// (path_set.h).
//
// Files: session.cc (life), session_control.cc (what frames mean), session_resume.cc (another control connection),
// session_flows.cc (what its flows tell it), session_posting.cc (what other threads ask for). Its parts: control_link.h
// (the control connection), lookups.h, and flow.h (transfers, messages, and the paths that carry them). Threads:
// everything is the driver's (see lane.h) but what is under "any thread".
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/counter.h"
#include "datapath/flow/credit_window.h"
#include "datapath/flow/flow.h"
#include "datapath/identity/greeting.h"
#include "datapath/identity/resumption.h"
#include "datapath/lane/event_queues.h"
#include "datapath/session/control_link.h"
#include "datapath/session/lookups.h"
#include "datapath/session/room.h"
#include "datapath/session/session_host.h"
#include "datapath/session/session_phase.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

class SessionImpl final : public EventSource, public TransferSink, public FlowUser, private LinkUser {
 public:
  /// Active: `target` is what connect() was given, for words.
  SessionImpl(std::shared_ptr<SessionHost> host, bool active, std::string target = {});

  // --- any thread -------------------------------------------------------------------------------------------------
  [[nodiscard]] PeerState state() const noexcept;
  [[nodiscard]] SessionHost& host() noexcept { return *host_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_.load(std::memory_order_acquire); }
  /// Names and reasons, copied under a lock.
  struct Description {
    std::string name, address, principal, transport, explain;
    Status closed;
  };
  [[nodiscard]] Description description() const;
  [[nodiscard]] PeerStats stats() const;
  /// Takes the oldest event if there is one.
  bool take_event(Event& event);
  [[nodiscard]] bool events_over() const noexcept override { return events_over_.load(std::memory_order_acquire); }
  /// After `event` was: the peer may be waiting for credits, and our driver be asleep.
  void event_taken(const Event& event, const Taken& taken);
  /// Whether one more may be posted; then it counts as posted. kResourceExhausted: enough is.
  Status admit(const TransferImpl& transfer);
  /// Submits what was admitted; the transfer's status says if it cannot be.
  void submit(TransferImpl& transfer);
  void request_cancel(TransferImpl& transfer);
  /// By name, or by capability.
  std::shared_ptr<LookupRequest> start_lookup(std::string_view name, bool prefix, std::string_view capability = {});
  void request_close(std::chrono::nanoseconds grace);

  // --- driver: life ------------------------------------------------------------------------------------------------
  /// To the first of these places that answers.
  void connect_to(std::vector<Place> places);
  /// `said`: what came over the connection already, at another host; null: nothing.
  void start_passive(std::unique_ptr<ControlChannel> channel, const control::Resume* said = nullptr);
  [[nodiscard]] ControlLink& link() noexcept { return link_; }
  /// A region of ours was withdrawn: the peer hears of it if it knows it.
  void tell_withdrawn(std::uint64_t id) { lookups_.withdraw(id); }
  /// Timers and whatever the last poll left to do. Cheap when there is nothing.
  void advance(Clock::time_point now);
  [[nodiscard]] bool wants_advance() const noexcept {
    // What is due but once: a session that drains goes on by time.
    const bool due = phase_ < Phase::kDraining && (link_.overrun() || lookups_.is_listing());
    return dirty_ || bulk_.wants_advance() || (commands_ != nullptr && commands_->wants_advance()) || due;
  }
  /// Work waits for room on the path, which the last poll may have made.
  [[nodiscard]] bool has_backlog() const noexcept {
    return bulk_.has_backlog() || (commands_ != nullptr && commands_->has_backlog());
  }
  /// Ends the session now; posted transfers complete with `status` once their path let go.
  void fail(Status status) override;
  /// The engine goes: posted transfers end as cancelled.
  void shut_down();
  /// Ends without waiting for the path to drain, and without a word to the peer.
  void abandon(Status why = {});
  [[nodiscard]] bool is_active() const noexcept { return active_; }
  [[nodiscard]] bool finished() const noexcept { return phase_ == Phase::kClosed; }

 private:
  using Phase = SessionPhase;
  // Versions of the protocol. 2: a path may be set up beside the one in use. 3: who connects may show who it is.
  // 4: classes of traffic. 5: another control connection may take the place of one that broke. 6: a flow may have
  // several paths.
  static constexpr std::uint32_t kOldestVersion = 1, kNewestVersion = 6, kPathsBeside = 2, kClasses = 4, kResumes = 5,
                                 kRails = 6;
  [[nodiscard]] bool has_classes() const noexcept { return peer_version_ >= kClasses; }

  // session_control.cc
  void link_up() override;
  void link_refused(const Status& why) override;
  void link_heard(const control::Frame& frame) override;
  [[nodiscard]] bool link_may_speak() const noexcept override {
    return phase_ >= Phase::kDraining || !lookups_.is_listing();
  }
  void link_lost(const Status& why) override;
  void send_hello();
  [[nodiscard]] std::string nonce();
  void send_frame(const control::Frame& frame) override { link_.send(frame); }
  [[nodiscard]] bool try_elsewhere(const Status& why);
  void handle_hello(const control::Hello& hello);
  void handle_challenge(const control::Challenge& challenge);
  void handle_proof(const control::Proof& proof);
  void admit(const control::Hello& hello);
  void greet(const control::Hello& hello);
  void refuse(const Status& why);
  void turned_away(std::uint32_t code, std::string_view what, const std::string& reason);
  void handshake_refused(Code why) noexcept;
  void handle_goodbye(const control::Goodbye& goodbye);

  // session_resume.cc
  [[nodiscard]] Status begin_keeping(std::string_view secret);
  [[nodiscard]] bool may_resume() const noexcept;
  void await_resumption(const Status& why);
  void end_cut(const std::string& because);
  void hear_resuming(const control::Frame& frame);
  void not_the_peer();
  void hear_refused_again(const control::Refused& refused);
  void resumed(std::uint64_t heard_there);
  void handle_resume(const control::Resume& resume);
  void hand_over();
  void move_over();

  // session.cc
  void begin_close(Status status);
  void begin_drain(Status status, Code transfers_end_as);
  void finish_close();
  /// The peer said goodbye, and its path has nothing more to say.
  [[nodiscard]] bool is_left(Clock::time_point now) noexcept;
  /// Closing, and nothing of ours is left to be done on the path in use. What the peer goes on asking for does not keep
  /// us, but for a moment: the outcome of its last atomic may be on its way.
  [[nodiscard]] bool may_end(Clock::time_point now) noexcept;
  [[nodiscard]] bool was_ready() const noexcept { return bulk_.was_usable(); }
  void check_timers(Clock::time_point now);
  void set_public_state(PeerState state) noexcept;
  [[nodiscard]] CreditWindow::Limits window() const noexcept {
    return {window_events_.load(std::memory_order_relaxed), window_bytes_.load(std::memory_order_relaxed)};
  }
  void saw(SessionEvent event) noexcept { host_->session_event(phase_, event); }
  [[nodiscard]] std::string who() const override;
  [[nodiscard]] RegionTable::View seen_by_peer() const noexcept override {
    return host_->regions().seen_by(greeting_.principal(), tenant_.get(), &lookups_.told());
  }
  /// Whose it is, is known: its paths' domains are made, those that a path may be opened in.
  void open_domains(const std::vector<Offer>& theirs);
  [[nodiscard]] Result<DomainBook*> domain_at(std::size_t transport) override;
  [[nodiscard]] DeviceStaging* device_staging() noexcept override {
    return host_->regions().staging(host_->lane().number());
  }
  [[nodiscard]] std::shared_ptr<SessionImpl> self() {
    return std::static_pointer_cast<SessionImpl>(shared_from_this());
  }

  // session_flows.cc
  void accept_transfer(TransferImpl& transfer) override;
  void transfer_ended(TransferImpl& transfer, Code code) override;
  [[nodiscard]] static Status is_lost_with(const TransferImpl& ended);
  void untie(TransferImpl& transfer);
  void begin_followers();
  [[nodiscard]] Flow& flow_of(TrafficClass traffic);
  void give_to(Flow& flow, TransferImpl& transfer);
  void open_commands();
  void begin(Flow& flow);
  void begin_commands();
  void handle_path_frame(const control::Frame& frame);
  template <typename Use>
  void for_flows(Use use) {
    if (commands_ != nullptr) use(*commands_);
    use(bulk_);
  }
  template <typename Use>
  void for_paths(Use use) {
    for_flows([&use](Flow& flow) { flow.for_paths(use); });
  }
  template <typename Is>
  [[nodiscard]] bool all_flows(Is is) {
    return is(bulk_) && (commands_ == nullptr || is(*commands_));
  }
  void deliver(Event&& event) override;
  [[nodiscard]] std::size_t waiting(TrafficClass traffic) const noexcept override;
  void flow_usable(Event&& news) override;
  void flow_lost() override;
  void flow_described() override;
  [[nodiscard]] std::vector<OpenTransport>& transports() noexcept override { return host_->transports(); }
  [[nodiscard]] bool linked() const noexcept override { return link_.exists() && !link_.is_cut(); }
  [[nodiscard]] PathConfig path_config() override;
  [[nodiscard]] Figures* figures() noexcept override { return host_->figures(); }
  [[nodiscard]] Clock::time_point now() const noexcept override { return host_->now(); }
  void path_event(PathState state, PathEvent event) noexcept override { host_->path_event(state, event); }

  const std::shared_ptr<SessionHost> host_;
  const bool active_;
  std::atomic<std::uint64_t> id_{0};
  Phase phase_ = Phase::kResolving;
  bool dirty_ = false;
  const std::string target_;  // what connect() was given

  const Clock::time_point started_at_;
  ControlLink link_;
  struct Hosts {
    std::string peer, local;
  };
  Hosts hosts_;  // of the connection that stands, or of the last one that did
  Greeting greeting_;
  std::optional<control::Hello> unproved_;  // of who is to show its key
  Resumption resumption_;
  std::uint64_t peer_engine_ = 0;  // what its Hello said
  std::string cut_because_;        // the control connection is cut, since then
  Clock::time_point cut_at_{};
  // Passive: who connected goes on with this session, if it shows that it is its peer.
  struct Asked {
    std::weak_ptr<SessionImpl> session;
    control::Resume resume;
    std::string nonce;
    std::optional<control::Proof> proof;
    bool elsewhere = false;  // the session has another host, which is to hear of it
  };
  std::optional<Asked> asked_;
  Lookups lookups_;
  std::shared_ptr<Tenant> tenant_;  // null: its paths use the devices' own domains

  Flow bulk_;
  std::unique_ptr<Flow> commands_;                   // from when either end needs it
  std::atomic<const Flow*> commands_seen_{nullptr};  // the same, for any thread
  std::vector<Event> early_;                         // commands that came before the session was ready
  std::uint32_t peer_version_ = 0;                   // the newest that it speaks; 0: not greeted yet
  List<TransferImpl> may_begin_;                     // what they were to follow has ended
  Outbox::Limits limits_;                            // the peer's
  std::vector<Candidate> candidates_;                // active: for paths, the best first
  std::vector<std::string> rejected_;                // active: what is none, and why
  std::vector<Offer> peer_offers_;                   // passive: what the peer may offer a path over

  // Closing.
  Status close_status_;
  Code transfers_end_as_ = Code::kOk;
  Clock::time_point close_deadline_ = Clock::time_point::max();
  Clock::time_point drain_deadline_ = Clock::time_point::max();
  bool goodbye_seen_ = false;
  // The peer ended the session in order. What it got of ours before, its path may say after its goodbye, which came by
  // another way: nothing more is posted, and what is posted is waited for so long.
  std::optional<Clock::time_point> done_at_;  // closing: nothing of ours is left since then
  std::optional<Clock::time_point> farewell_until_;

  // Shared with application threads.
  std::atomic<PeerState> public_state_{PeerState::kConnecting};
  std::atomic<bool> events_over_{false};
  mutable std::mutex mutex_;  // guards description_
  Description description_;
  struct {
    Counter resumptions, atomics, bytes_written, bytes_read, messages_sent, messages_received, transfers_completed,
        transfers_failed;
  } stats_;  // written by the driver

  [[nodiscard]] Room& room_of(const TransferImpl& transfer) noexcept {
    return rooms_[static_cast<std::size_t>(transfer.traffic)];
  }
  std::array<Room, kTrafficClasses> rooms_;
  // What the peer may have undelivered, of each class. Written before anything comes.
  std::atomic<std::size_t> window_events_, window_bytes_;
};

}  // namespace fairlead::datapath
