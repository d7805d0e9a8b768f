// One lane of an engine: its sessions, their control connections, and its endpoints at the engine's devices.
//
// A session stays in the lane that it began in; lanes share nothing that moves bytes. What concerns all of an engine's
// sessions (who may come in, who gives way) is in session_register.h. The first lane of an engine that listens accepts
// for all.
//
// Threads: the lane's driver (lane/lane.h), but for what is under "any thread". Ownership: the engine's; sessions keep
// the engine.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/recent_time.h"
#include "datapath/engine/engine_commons.h"
#include "datapath/engine/listener.h"
#include "datapath/engine/live_engines.h"
#include "datapath/engine/transports.h"
#include "datapath/flow/device_staging.h"
#include "datapath/identity/principals.h"
#include "datapath/lane/event_queues.h"
#include "datapath/lane/lane.h"
#include "datapath/session/session.h"
#include "datapath/session/session_host.h"

namespace fairlead::datapath {

class EngineLane final : public SessionHost, private Domain {
 public:
  EngineLane(EngineCommons& commons, const LiveEngine& fork, std::size_t number, Principals known);
  ~EngineLane() = default;

  // --- before it starts
  /// False if there was no descriptor to be had, or no room to watch it.
  [[nodiscard]] bool valid() const noexcept { return control_epoll_ && queues_.valid() && lane_.valid(); }
  /// `owner`: whom sessions keep. `listener`: null, or whom this lane looks after, giving who connects to `take`.
  Status start(std::weak_ptr<void> owner, Listener* listener, std::function<void(UniqueFd)> take);
  [[nodiscard]] int control_epoll() const noexcept { return control_epoll_.get(); }

  // --- any thread
  [[nodiscard]] Lane& lane() noexcept override { return lane_; }
  [[nodiscard]] const Lane& lane() const noexcept { return lane_; }
  [[nodiscard]] EventQueues& queues() noexcept override { return queues_; }
  [[nodiscard]] Transports& ways() noexcept { return transports_; }
  [[nodiscard]] const Transports& ways() const noexcept { return transports_; }
  /// How many sessions it has, or is about to have.
  [[nodiscard]] std::size_t load() const noexcept { return load_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::shared_ptr<SessionImpl> make_session(bool active, std::string target = {});
  /// The session begins: `begin` is called on the driver, once it is one of the lane's. In a lane that is closed it
  /// ends.
  void enter(std::shared_ptr<SessionImpl> session, std::function<void(SessionImpl&)> begin);
  /// The same for who connected.
  void enter(UniqueFd connection);
  void resume_here(std::unique_ptr<ControlChannel> channel, const control::Resume& resume) override;

  // --- driver
  [[nodiscard]] const std::vector<std::shared_ptr<SessionImpl>>& sessions() const noexcept { return live_; }
  void use_keys(const Principals& known) { principals_ = known; }
  /// Advances everything once.
  bool progress() noexcept override;
  /// Ends what is left, and closes its endpoints.
  void close();

 private:
  using GivesWay = SessionRegister::GivesWay;

  void meet(const std::shared_ptr<SessionImpl>& stranger);
  void end(const GivesWay& it, void (*how)(SessionImpl&, const Status&));
  void poll_control();
  [[nodiscard]] DeviceStaging* staging() const noexcept { return commons_.regions->staging(lane_.number()); }

  // SessionHost
  [[nodiscard]] const EngineConfig& config() const noexcept override { return commons_.config; }
  [[nodiscard]] RegionTable& regions() noexcept override { return *commons_.regions; }
  [[nodiscard]] const Principals& principals() const noexcept override { return principals_; }
  [[nodiscard]] bool inherited() const noexcept override { return fork_.inherited(); }
  [[nodiscard]] Status usable() const override { return fork_.usable(); }
  [[nodiscard]] Clock::time_point now() const noexcept override { return Clock::now(); }
  [[nodiscard]] std::uint64_t engine_id() const noexcept override { return commons_.id; }
  [[nodiscard]] std::uint64_t random() override { return random_u64(); }
  Result<std::unique_ptr<ControlStream>> dial(const std::string& numeric_host, std::uint16_t port) override;
  [[nodiscard]] std::vector<OpenTransport>& transports() noexcept override { return transports_.all(); }
  [[nodiscard]] Figures* figures() noexcept override {
    return commons_.config.choice == PathChoice::kMeasured ? &figures_ : nullptr;
  }
  void open_for_peer(const std::vector<Offer>& theirs) override;
  [[nodiscard]] std::vector<Offer> offers() const override { return transports_.offers(); }
  Status watch_control(const ControlStream& stream, ControlLink& link, std::uint32_t events, bool first) override;
  void unwatch_control(const ControlStream& stream) override;
  [[nodiscard]] Status admit_peer(const SessionImpl& session, const std::string& principal,
                                  CreditWindow::Limits& window) override;
  [[nodiscard]] std::shared_ptr<SessionImpl> find_session(std::uint64_t id) override {
    return commons_.sessions.find(id);
  }
  void session_ready(SessionImpl& session) override;
  void session_cut(SessionImpl& session, bool is_cut) override;
  void session_closed(SessionImpl& session, Ended how) override { commons_.sessions.closed(session, how); }
  void handshake_refused() noexcept override { commons_.sessions.refused(); }
  // Domain
  bool arm() noexcept override;
  void disarm() noexcept override;
  void settle() noexcept override;
  [[nodiscard]] std::chrono::milliseconds sleep_limit() noexcept override;

  EngineCommons& commons_;
  const LiveEngine& fork_;
  std::weak_ptr<void> owner_;
  std::atomic<std::size_t> load_{0};
  Principals principals_;

  Transports transports_;
  Figures figures_;
  Listener* listener_ = nullptr;
  std::function<void(UniqueFd)> take_;
  PrivateFd control_epoll_;
  std::vector<std::shared_ptr<SessionImpl>> live_;
  RecentTime<Clock::time_point> recent_;
  Clock::time_point last_tick_{}, control_at_{};
  bool closed_ = false;

  EventQueues queues_;
  Lane lane_;
};

}  // namespace fairlead::datapath
