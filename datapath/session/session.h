// A session with one peer: it outlives the paths that carry it.
//
// Life: resolving -> connecting -> hello -> pathing -> ready -> (fencing -> pathing -> ready)* -> closing -> closed.
// The end that connected is "active": it chooses transports, numbers path epochs and leads recovery.
//
// When a path dies (session_path.cc): fence first, then replay. The active end closes its path, drains it, and sends
// Fence{epoch, received}; the passive end does the same and answers FenceAck{epoch, received}. `received` is the
// sequence up to which notifications and fragments were delivered, so each end knows exactly which of its transfers
// are finished. What is not is posted again, in the order of posting, on the next path.
//
// Files: session.cc (control connection, life), session_path.cc (paths, fencing, recovery), session_data.cc (the path's
// data). Its parts: outbox.h (transfers), in_flight.h (what a path holds), inbound.h (notifications and messages of the
// peer), staging.h (one-sided operations by message), lookups.h, control_channel.h.
// Threads: everything is the driver's (see lane.h) but what is under "any thread".
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/counter.h"
#include "datapath/lane/event_queues.h"
#include "datapath/protocol/path_messages.h"
#include "datapath/session/choice.h"
#include "datapath/session/control_channel.h"
#include "datapath/session/in_flight.h"
#include "datapath/session/inbound.h"
#include "datapath/session/lookups.h"
#include "datapath/session/outbox.h"
#include "datapath/session/session_host.h"
#include "datapath/session/staging.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

/// The id of the write that proves a path: it is in no InFlight, since a device may never report it.
inline constexpr std::uint64_t kProbeId = 0;

/// One path and how far it is.
struct PathSlot {
  std::unique_ptr<Path> path;
  const Capabilities* can = nullptr;
  InFlight in_flight;              // all but the probe
  std::size_t transport = 0;       // ours
  std::size_t peer_transport = 0;  // theirs
  std::uint64_t epoch = 0;
  bool connected = false;  // the transport said on_ready
  bool hello_received = false;
  bool hello_sent = false;
  bool write_proved = false;  // our WRITE reached the peer's probe
  bool write_failed = false;  // it was refused or did not end: staged mode
  bool ready_sent = false;
  bool peer_ready = false;
  bool usable = false;
  bool closed = false;  // we fenced it
  bool down = false;    // it died by itself
  Code down_code = Code::kOk;
  std::string down_reason;
  Clock::time_point down_at;
  RemoteRegionImpl::Key peer_probe;
  Clock::time_point opened_at;
  Clock::time_point last_progress;
  bool moved = false;             // something completed since last_progress was set
  Clock::time_point probed_at{};  // when the peer was asked whether it is alive, because nothing moved
  bool probe_answered = false;
};

class SessionImpl final : public EventSource, public TransferSink, private OutboxUser {
 public:
  SessionImpl(std::shared_ptr<SessionHost> host, bool active);

  // --- any thread -------------------------------------------------------------------------------------------------
  [[nodiscard]] PeerState state() const noexcept;
  [[nodiscard]] SessionHost& host() noexcept { return *host_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_.load(std::memory_order_acquire); }
  /// Names and reasons, copied under a lock.
  struct Description {
    std::string name, address, transport, explain;
    Status closed;
  };
  [[nodiscard]] Description description() const;
  [[nodiscard]] PeerStats stats() const;
  /// Takes the oldest event if there is one.
  bool take_event(Event& event);
  /// After the `taken`-th event was: the peer may be waiting for credits, and our driver be asleep.
  void event_taken(std::size_t taken);
  /// Submits; the transfer's status says if it cannot be.
  void submit(TransferImpl& transfer);
  void request_cancel(TransferImpl& transfer);
  std::shared_ptr<LookupRequest> start_lookup(std::string_view name, bool prefix);
  void request_close(std::chrono::nanoseconds grace);

  // --- driver: life ------------------------------------------------------------------------------------------------
  void start_active(const std::string& host_port_text);
  void connect_to(const std::string& numeric_host, std::uint16_t port);
  void start_passive(std::unique_ptr<ControlStream> stream);
  void on_control_ready(std::uint32_t epoll_events);
  /// Timers and whatever the last poll left to do. Cheap when there is nothing.
  void advance(Clock::time_point now);
  [[nodiscard]] bool wants_advance() const noexcept { return dirty_; }
  /// Control frames have arrived that the last on_control_ready() left for the next.
  [[nodiscard]] bool control_pending() const noexcept { return channel_ != nullptr && channel_->pending(); }
  /// Work waits for room on the path, which the last poll may have made.
  [[nodiscard]] bool has_backlog() const noexcept { return outbox_.has_backlog() || staged_target_.owes(); }
  /// Ends the session now; posted transfers complete with `status` once their path let go.
  void fail(Status status);
  /// The engine goes: posted transfers end as cancelled.
  void shut_down();
  /// The engine is gone: ends without waiting for the path to drain.
  void abandon() {
    if (phase_ != Phase::kClosed) finish_close();
  }
  [[nodiscard]] bool is_active() const noexcept { return active_; }
  [[nodiscard]] bool was_ready() const noexcept { return !carried_by_.empty(); }
  [[nodiscard]] bool finished() const noexcept { return phase_ == Phase::kClosed; }

  // --- driver: from transports -------------------------------------------------------------------------------------
  void on_path_ready(Path& path);
  void on_path_completion(Path& path, std::uint64_t id, Code code);
  void on_path_message(Path& path, std::span<const std::byte> bytes);
  void on_path_notification(Path& path, std::uint32_t value);
  void on_path_down(Path& path, Code code, std::string_view reason);

  // --- driver: from Submission -------------------------------------------------------------------------------------
  void accept_transfer(TransferImpl& transfer) override;

 private:
  enum class Phase : std::uint8_t {
    kResolving,
    kConnecting,
    kHello,
    kPathing,
    kReady,
    kFencing,
    kAwaitingFence,
    kClosing,
    kDraining,
    kClosed
  };
  // session.cc
  void handle_frame(const control::Frame& frame);
  void handle_hello(const control::Hello& hello);
  void handle_goodbye(const control::Goodbye& goodbye);
  void send_frame(const control::Frame& frame);
  void send_hello();
  void become_ready();
  void begin_close(Status status);
  void begin_drain(Status status, Code transfers_end_as);
  void finish_close();
  void check_timers(Clock::time_point now);
  void check_deadlines(Clock::time_point now);
  void watch_control();
  void read_control();
  void set_public_state(PeerState state) noexcept;
  [[nodiscard]] std::string who() const override;
  [[nodiscard]] std::shared_ptr<SessionImpl> self() {
    return std::static_pointer_cast<SessionImpl>(shared_from_this());
  }

  // session_path.cc
  void begin_path();
  void handle_path_offer(const control::PathOffer& offer);
  void handle_path_answer(const control::PathAnswer& answer);
  void handle_path_ready(const control::PathReady& ready);
  void handle_path_down(const control::PathDown& down);
  void handle_fence(const control::Fence& fence);
  void handle_fence_ack(const control::FenceAck& ack);
  bool open_slot(std::size_t transport, std::size_t peer_transport, std::uint64_t epoch, PathRole role, Status& error);
  void prove_slot();
  void check_slot_proved();
  void candidate_failed(Code code, const std::string& reason);
  void path_died(Code code, const std::string& reason);
  void advance_path(Clock::time_point now);
  void check_path_progress(Clock::time_point now);
  void close_slot();
  void drop_slot();
  void send_fence_ack(std::uint64_t peer_received);
  void after_fence(std::uint64_t peer_received);
  [[nodiscard]] bool has_alternative() const;

  // session_data.cc
  void transfer_ended(TransferImpl& transfer, Code code, std::string reason) override;
  void pump();
  void pump_staged();
  void request_ended(const PostedRequest& request, Code code);
  void handle_sequenced(const PathMessage& message);
  void handle_staged(const PathMessage& message);
  void send_consumed(bool eager);
  bool send_path_message(const PathMessage& message);

  const std::shared_ptr<SessionHost> host_;
  const bool active_;
  std::atomic<std::uint64_t> id_{0};
  Phase phase_ = Phase::kResolving;
  bool dirty_ = false;
  std::string target_;  // what connect() was given

  // Control connection.
  std::unique_ptr<ControlChannel> channel_;
  std::uint32_t watched_ = 0;  // epoll events asked for
  bool overrun_ = false;       // the peer lets too much of ours lie
  const Clock::time_point started_at_;
  Clock::time_point last_heard_;
  Clock::time_point last_ping_{};
  Lookups lookups_;

  std::vector<Offer> peer_offers_;

  // Paths.
  std::vector<Candidate> candidates_;
  std::vector<std::string> excluded_;  // per candidate: why it is not to be tried (again); empty: it may be
  std::size_t candidate_ = 0;          // the one in use
  std::unique_ptr<PathSlot> slot_;
  std::unique_ptr<PathSlot> dead_slot_;  // to be destroyed outside of its own callbacks
  std::uint64_t epoch_ = 0;
  bool fence_requested_ = false;      // passive: the active end waits for our FenceAck
  std::uint64_t fence_received_ = 0;  // what the active end said in its Fence
  Code fence_code_ = Code::kOk;
  std::string fence_reason_;
  std::string carried_by_;  // the transport of the last usable path

  // Transfers.
  Outbox outbox_;
  std::atomic<bool> cancel_pending_{false};
  Clock::time_point deadlines_checked_{};
  Clock::time_point release_deadline_ =
      Clock::time_point::max();  // a cancelled transfer's buffer is to be let go by then

  // What the peer sends, and what its staged operations are owed.
  Inbound inbound_;
  staging::Target staged_target_;

  // Closing.
  Status close_status_;
  Code transfers_end_as_ = Code::kOk;
  Clock::time_point close_deadline_ = Clock::time_point::max();
  Clock::time_point drain_deadline_ = Clock::time_point::max();
  bool goodbye_seen_ = false;

  // Shared with application threads.
  std::atomic<PeerState> public_state_{PeerState::kConnecting};
  mutable std::mutex mutex_;  // guards description_
  Description description_;
  struct {
    Counter bytes_written, bytes_read, messages_sent, messages_received, transfers_completed, transfers_failed,
        failovers, duplicate_notifications_dropped;
  } stats_;  // written by the driver
};

}  // namespace fairlead::datapath
