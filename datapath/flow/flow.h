// One stream of transfers and messages between two engines: in order, each once, whatever becomes of the paths that
// carry it. A session has one for each class of traffic.
//
// Its parts: path_set.h (its first path), rail.h (others, for data of large transfers), outbox.h (our transfers),
// in_flight.h (what a path holds), inbound.h (notifications and messages of the peer), staging.h (one-sided operations
// by message; device_target.h, into memory of GPUs), bounce.h (our own such memory). Files: flow.cc (transfers and what
// a path carries), flow_path.cc (what becomes of the first path), flow_rails.cc (the others). Threads: everything is
// the driver's (see lane.h) but counters().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/counter.h"
#include "datapath/flow/bounce.h"
#include "datapath/flow/device_staging.h"
#include "datapath/flow/device_target.h"
#include "datapath/flow/inbound.h"
#include "datapath/flow/outbox.h"
#include "datapath/flow/path_set.h"
#include "datapath/flow/rail.h"
#include "datapath/flow/staging.h"
#include "datapath/lane/lane.h"
#include "datapath/protocol/path_messages.h"
#include "datapath/transfer/transfer_impl.h"
#include "fairlead/config.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

/// The session, as its flows see it.
class FlowUser : public PathHost, public OutboxUser {
 public:
  [[nodiscard]] std::string who() const override = 0;
  virtual void send_frame(const control::Frame& frame) = 0;
  /// What of ours the peer may know of.
  [[nodiscard]] virtual RegionTable::View seen_by_peer() const noexcept = 0;
  /// What the peer sent, for the application.
  virtual void deliver(Event&& event) = 0;
  /// Of what the peer sent with this class, so much the application has not taken yet.
  [[nodiscard]] virtual std::size_t waiting(TrafficClass traffic) const noexcept = 0;
  /// A flow has a path; `news` says so: kConnected for the first, kPathChanged after that.
  virtual void flow_usable(Event&& news) = 0;
  /// Its path died; another is looked for.
  virtual void flow_lost() = 0;
  /// It has one more path, or one less.
  virtual void flow_described() = 0;
  /// What memory of GPUs is staged through; null: there is none.
  [[nodiscard]] virtual DeviceStaging* device_staging() noexcept { return nullptr; }

 protected:
  ~FlowUser() = default;
};

class Flow final : public PathEvents, private PathUser, private RailUser {
 public:
  Flow(FlowUser& user, TrafficClass traffic, bool active, const EngineConfig& config);

  [[nodiscard]] const FlowUser& user() const noexcept { return user_; }
  /// Before anything came: what the peer may have undelivered.
  void set_window(const CreditWindow::Limits& window) noexcept { inbound_.set_window(window.events, window.bytes); }
  /// What the peer said it can, once it is greeted: paths beside the one in use, and rails.
  void allow(bool beside, bool rails) noexcept;
  /// Active: its first path is to be the best of these. Passive: the peer may offer paths over those.
  void begin(std::vector<Candidate> candidates);
  void expect(std::vector<Offer> peer_offers);
  /// A frame of the peer's that speaks of paths. False: it does not, or of none of ours.
  bool handle(const control::Frame& frame);
  /// The first path.
  [[nodiscard]] PathSet& paths() noexcept { return paths_; }
  /// All of them.
  template <typename Use>
  void for_paths(Use use) {
    use(paths_);
    for (const std::unique_ptr<Rail>& rail : rails_) {
      if (rail != nullptr) use(rail->paths());
    }
  }
  [[nodiscard]] bool drained() noexcept;
  [[nodiscard]] Outbox& outbox() noexcept { return outbox_; }
  [[nodiscard]] const Outbox& outbox() const noexcept { return outbox_; }

  /// Takes a transfer to be carried out. False: there is no memory for it, and nothing of it is on its way.
  [[nodiscard]] bool accept(TransferImpl& transfer);
  /// Paths, and whatever the last poll left to do.
  void advance(Clock::time_point now);
  /// What is late, and what does not move.
  void check_timers(Clock::time_point now);
  [[nodiscard]] bool wants_advance() const noexcept { return dirty_; }
  /// Every transfer ends with `code`. The paths are gone; copies that are under way are waited for.
  void end_all(Code code, const std::string& reason);
  /// Work waits for room on the path, which the last poll may have made.
  [[nodiscard]] bool has_backlog() const noexcept { return outbox_.has_backlog() || staged_target_.owes(); }

  /// The peer left: nothing more is posted.
  void stop_posting() noexcept { stopped_ = true; }
  /// Nothing that is posted is waited for, or its path cannot say more of it.
  [[nodiscard]] bool has_said_all() noexcept;
  /// It has had a path.
  [[nodiscard]] bool was_usable() const noexcept { return !carried_by_.empty(); }
  /// It has had a path, and has none.
  [[nodiscard]] bool is_recovering() noexcept { return was_usable() && paths_.in_use() == nullptr; }
  /// The transport of its last first path.
  [[nodiscard]] const std::string& carried_by() const noexcept { return carried_by_; }
  /// Why that one, and which others there are.
  [[nodiscard]] std::string explanation();
  /// Whether the peer gave a sign of life on a path since the last call.
  [[nodiscard]] bool take_life() noexcept { return std::exchange(alive_, false); }

  struct Counters {
    Counter paths_measured;
    Counter recoveries, failovers, failbacks, duplicate_notifications_dropped, atomics_served;
    Counter rail_bytes;  // written and read over paths beside the first
  };
  /// Any thread.
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

 private:
  // flow.cc
  void on_completion(Path& path, const Ended& ended) noexcept override;
  void one_completed(PathSlot& slot, std::uint64_t id, Code code);
  void on_message(Path& path, std::span<const std::byte> bytes) noexcept override;
  void on_notification(Path& path, std::uint32_t value) noexcept override;
  [[nodiscard]] bool post_lone(PathSlot& slot, TransferImpl& transfer);
  void pump();
  void pump_first();
  void pump_staged();
  [[nodiscard]] Outbox::Way way_of(const PathSlot& slot) const noexcept;
  void request_ended(const PostedRequest& request, Code code);
  void handle_sequenced(const PathMessage& message);
  void handle_atomic(const PathMessage& message);
  void handle_staged(const PathMessage& message);
  void fail_early(const PathSlot& slot);
  void send_consumed();
  bool send_path_message(const PathMessage& message, PostedRequest::Use use);

  // flow_path.cc
  void on_ready(Path& path) noexcept override;
  void on_down(Path& path, Code code, std::string_view reason) noexcept override;
  [[nodiscard]] PathEvents& path_events() noexcept override { return *this; }
  void send_frame(const control::Frame& frame) override;
  void path_in_use() override;
  void path_lost() override;
  void path_gone(InFlight& held) override;
  [[nodiscard]] bool is_idle() const noexcept override { return outbox_.size() == 0; }
  void path_measured() override;
  [[nodiscard]] bool path_lingers() const noexcept override { return staged_target_.copies(); }
  [[nodiscard]] std::uint64_t received() const noexcept override { return inbound_.received(); }
  [[nodiscard]] std::uint64_t acknowledged() const noexcept override { return outbox_.acknowledged(); }
  [[nodiscard]] bool apply_received(std::uint64_t received, std::string& why) override {
    return outbox_.apply_received(received, why);
  }
  void no_path(Status why) override { user_.fail(std::move(why)); }

  // flow_rails.cc
  void open_rails();
  Rail* rail(std::size_t number, bool may_open);
  void pump_rail(Rail& rail);
  [[nodiscard]] bool has_rails() noexcept;
  [[nodiscard]] PathSlot* way_over(Rail& rail) noexcept;
  void rail_says(const Rail& rail, const control::Frame& frame) override;
  void rail_moved(bool alive) noexcept override;
  void rail_in_use(const Rail& rail, bool again) override;
  void rail_lost() override;
  void rail_ended(const PostedRequest& request, Code code) override;
  void rail_fenced(const Rail& rail) override { outbox_.fenced(rail.number()); }
  void rail_misused(const Rail& rail) override;

  FlowUser& user_;
  const TrafficClass traffic_;
  const bool active_;
  const PathSet::Rules rules_;
  PathSet paths_;
  // Rails: as many as were asked for, or offered; null: none of this number yet.
  const std::uint64_t stripe_;  // bytes
  const std::size_t wanted_;    // paths
  bool rails_allowed_ = false;
  bool rails_due_ = false;  // by the next advance(): paths are not opened from inside their callbacks
  std::vector<std::unique_ptr<Rail>> rails_;
  Share first_share_;                  // of the first path, while there are rails
  std::vector<Candidate> candidates_;  // active
  std::vector<Offer> peer_offers_;     // passive
  std::string carried_by_, explanation_;
  bool dirty_ = false;
  bool alive_ = false;
  bool stopped_ = false;

  // Transfers.
  Bounce bounce_;
  Outbox outbox_;
  std::size_t gathered_ = 0;  // accepted since the path was last given something

  // What the peer sends, and what its staged operations are owed.
  Inbound inbound_;
  staging::DeviceTarget device_target_;
  staging::Target staged_target_;
  Counters counters_;
};

}  // namespace fairlead::datapath
