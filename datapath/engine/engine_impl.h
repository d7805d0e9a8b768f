// The engine behind fairlead::Engine: one lane with its transports, the sessions, the regions and the pool.
//
// Threads: what the driver owns is marked; the rest is immutable after create() or locked. Lives as long as any handle
// (Engine, Peer, Transfer, Memory) needs it; shut_down() makes it inert.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "datapath/engine/listener.h"
#include "datapath/engine/live_engines.h"
#include "datapath/engine/resolver.h"
#include "datapath/engine/transports.h"
#include "datapath/flow/choice.h"
#include "datapath/lane/event_queues.h"
#include "datapath/lane/lane.h"
#include "datapath/region/regions.h"
#include "datapath/session/session.h"
#include "fairlead/engine.h"
#include "memreg/pool.h"
#include "transport/path.h"

namespace fairlead::datapath {

class EngineImpl final : public std::enable_shared_from_this<EngineImpl>, public SessionHost, private Domain {
 public:
  static Result<std::shared_ptr<EngineImpl>> create(EngineConfig config);
  ~EngineImpl();
  /// Closes every session, stops the lane, deregisters everything. Idempotent.
  void shut_down();

  // --- any thread (memory: engine_memory.cc)
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(); }
  [[nodiscard]] const std::string& listen_address() const noexcept { return listener_.address(); }
  Result<Memory> allocate(std::size_t bytes);
  Result<Memory> register_memory(std::span<std::byte> bytes, Access access, std::function<void()> release);
  Result<std::vector<Memory>> register_memory(std::span<const std::span<std::byte>> ranges, Access access);
  Result<Memory> map_file(const std::string& path, Access access);
  Status publish(std::string_view name, const Memory& memory, Access access, std::optional<TensorSpec> tensor,
                 std::vector<std::string> audience);
  Status unpublish(std::string_view name);
  Status reload_keys();
  Result<std::shared_ptr<SessionImpl>> connect(std::string_view host_port);
  [[nodiscard]] std::vector<std::shared_ptr<SessionImpl>> sessions() const;
  [[nodiscard]] std::vector<DeviceInfo> devices(std::string_view peer) const;
  [[nodiscard]] EngineStats stats() const;

  // --- SessionHost
  [[nodiscard]] const EngineConfig& config() const noexcept override { return config_; }
  [[nodiscard]] Lane& lane() noexcept override { return lane_; }
  [[nodiscard]] RegionTable& regions() noexcept override { return *regions_; }
  [[nodiscard]] EventQueues& queues() noexcept override { return queues_; }
  [[nodiscard]] const Principals& principals() const noexcept override { return principals_; }
  [[nodiscard]] bool inherited() const noexcept override { return fork_.inherited(); }
  [[nodiscard]] Status usable() const override { return fork_.usable(); }

 private:
  explicit EngineImpl(EngineConfig config);
  /// Those of its keys file.
  static Result<Principals> known_by(const EngineConfig& config);
  void accept(UniqueFd connection);
  void greet_strangers();
  void forget_cut();
  bool end_oldest_cut(const std::string& principal, std::string_view because);
  [[nodiscard]] Status too_many_sessions() const;
  void poll_control();

  // SessionHost
  [[nodiscard]] Clock::time_point now() const noexcept override { return Clock::now(); }
  [[nodiscard]] std::uint64_t random() override { return random_u64(); }
  Result<std::unique_ptr<ControlStream>> dial(const std::string& numeric_host, std::uint16_t port) override;
  [[nodiscard]] std::vector<OpenTransport>& transports() noexcept override { return transports_.all(); }
  void open_for_peer(const std::vector<Offer>& theirs) override { transports_.open_for_peer(theirs, config_); }
  [[nodiscard]] std::vector<Offer> offers() const override { return transports_.offers(); }
  [[nodiscard]] LocalSegment probe_source(std::size_t transport) const noexcept override {
    return transports_.probe_source(transport);
  }
  void watch_control(const ControlStream& stream, ControlLink& link, std::uint32_t events, bool first) override;
  void unwatch_control(const ControlStream& stream) override;
  [[nodiscard]] Status admit_peer(const std::string& principal) override;
  [[nodiscard]] std::shared_ptr<SessionImpl> find_session(std::uint64_t id) override;
  void session_ready(SessionImpl& session) override;
  void session_cut(SessionImpl& session) override;
  void session_closed(SessionImpl& session, Ended how) override;
  void handshake_refused() noexcept override { handshakes_refused_.fetch_add(1, std::memory_order_relaxed); }
  // Domain
  bool progress() noexcept override;
  bool arm() noexcept override;
  [[nodiscard]] std::chrono::milliseconds sleep_limit() noexcept override;

  EngineConfig config_;
  Principals principals_;                // changes on the driver, under principals_mutex_
  mutable std::mutex principals_mutex_;  // of who reads them on another thread
  std::shared_ptr<RegionTable> regions_;
  std::shared_ptr<memreg::Pool> pool_;
  std::atomic<bool> stopped_{false};
  std::mutex shutting_down_, reloading_keys_;

  // Driver only.
  Transports transports_;
  Listener listener_;
  PrivateFd control_epoll_;
  std::vector<std::shared_ptr<SessionImpl>> live_;
  std::vector<std::shared_ptr<SessionImpl>> strangers_;  // of live_, those that have not said hello; oldest first
  std::vector<std::shared_ptr<SessionImpl>> cut_;  // of live_, those whose control connection broke; longest ago first
  std::uint64_t rounds_ = 0;
  Clock::time_point last_tick_{};

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::shared_ptr<SessionImpl>> sessions_;
  PeerStats ended_;
  std::uint64_t peers_connected_ = 0, peers_lost_ = 0, peers_failed_ = 0;

  Resolver resolver_;
  EventQueues queues_;
  std::atomic<std::uint64_t> handshakes_refused_{0};
  Lane lane_;
  LiveEngine fork_{*this};  // the last: all else is there before it is known
};

}  // namespace fairlead::datapath
