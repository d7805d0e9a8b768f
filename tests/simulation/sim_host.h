// One end of a simulated world: what an engine gives the sessions of a lane, on a virtual clock and without a thread or
// a socket.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coverage.h"
#include "datapath/session/session.h"
#include "datapath/session/session_host.h"
#include "fake_transport.h"
#include "sim_stream.h"
#include "world.h"

namespace fairlead::simulation {

class SimHost final : public datapath::SessionHost,
                      public std::enable_shared_from_this<SimHost>,
                      private datapath::Domain {
 public:
  /// `keys`: lines of a keys file; empty: everybody is anonymous.
  SimHost(World& world, Wire& wire, EngineConfig config, const std::vector<Habits>& transports,
          const std::string& keys = {});
  ~SimHost();

  /// Advances everything once. False: nothing happened.
  bool step() { return lane_.poll_once(); }
  /// A session over this stream, which begins with the next step.
  std::shared_ptr<datapath::SessionImpl> start(std::unique_ptr<datapath::ControlStream> stream, bool active);
  [[nodiscard]] bool idle() const noexcept { return sessions_.empty(); }
  [[nodiscard]] FakeTransport& fake(std::size_t i) { return static_cast<FakeTransport&>(*transports_[i].device); }
  /// Who is asked for a control connection in place of one that broke. kNotFound: nobody listens there.
  std::function<Result<std::unique_ptr<datapath::ControlStream>>(const datapath::Place&)> dial_again;
  /// Where whoever is connected to may be; the first connection leads to the second of these.
  std::vector<datapath::Place> places{{"10.0.0.1", 7400}, {"10.0.0.2", 7400}};
  /// The other lane of its engine, where sessions may be that connections which come here resume.
  std::weak_ptr<SimHost> other_lane;
  /// Its process is gone: its sessions end without a word to anybody.
  void die(const Status& why = {});
  /// Takes back its own memory. What is registered then is left over.
  void release();

  const EngineConfig& config() const noexcept override { return config_; }
  datapath::Lane& lane() noexcept override { return lane_; }
  datapath::RegionTable& regions() noexcept override { return *regions_; }
  datapath::EventQueues& queues() noexcept override { return queues_; }
  const datapath::Principals& principals() const noexcept override { return principals_; }
  bool inherited() const noexcept override { return false; }
  Status usable() const override { return {}; }
  Clock::time_point now() const noexcept override { return world_.now(); }
  std::uint64_t random() override { return world_.bits() | 1; }
  std::uint64_t engine_id() const noexcept override { return id_; }
  /// They are lanes of one engine.
  void joins(const SimHost& engine) noexcept { id_ = engine.id_; }
  Result<std::unique_ptr<datapath::ControlStream>> dial(const std::string&, std::uint16_t) override;
  std::vector<datapath::OpenTransport>& transports() noexcept override { return transports_; }
  datapath::Figures* figures() noexcept override {
    return config_.choice == PathChoice::kMeasured ? &figures_ : nullptr;
  }
  void open_for_peer(const std::vector<datapath::Offer>&) override {}
  std::vector<datapath::Offer> offers() const override;
  Status watch_control(const datapath::ControlStream&, datapath::ControlLink&, std::uint32_t events, bool) override;
  void unwatch_control(const datapath::ControlStream& stream) override {
    std::erase_if(watched_, [&](const Watched& each) { return each.stream == &stream; });
  }
  Status admit_peer(const datapath::SessionImpl&, const std::string&, datapath::CreditWindow::Limits&) override {
    return {};
  }
  std::shared_ptr<datapath::SessionImpl> find_session(std::uint64_t id) override;
  void session_ready(datapath::SessionImpl&) override {}
  void session_cut(datapath::SessionImpl&, bool) override {}
  void resume_here(std::unique_ptr<datapath::ControlChannel> channel, const datapath::control::Resume& resume) override;
  void session_closed(datapath::SessionImpl&, Ended) override {}
  void handshake_refused() noexcept override {}
  void path_event(datapath::PathState state, datapath::PathEvent event) noexcept override {
    ++pairs.paths[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
  }
  void session_event(datapath::SessionPhase phase, datapath::SessionEvent event) noexcept override {
    ++pairs.sessions[static_cast<std::size_t>(phase)][static_cast<std::size_t>(event)];
  }

  Pairs pairs;

  std::uint64_t moved_here = 0;  // connections that came to the other lane

 private:
  bool progress() noexcept override;
  std::shared_ptr<datapath::SessionImpl> find_here(std::uint64_t id);
  bool arm() noexcept override { return true; }
  milliseconds sleep_limit() noexcept override { return milliseconds(1); }

  World& world_;
  std::uint64_t id_;
  const EngineConfig config_;
  const datapath::Principals principals_;
  const std::shared_ptr<datapath::RegionTable> regions_ =
      std::make_shared<datapath::RegionTable>(config_.principal, [this] { return random(); });
  datapath::Figures figures_;
  datapath::EventQueues queues_;
  std::vector<datapath::OpenTransport> transports_;
  std::vector<std::shared_ptr<datapath::SessionImpl>> sessions_;
  std::unique_ptr<datapath::ControlStream> to_dial_;
  struct Watched {
    const datapath::ControlStream* stream;
    datapath::ControlLink* link;
    std::uint32_t events;
  };
  std::vector<Watched> watched_;
  datapath::Lane lane_;
};

// What makers of troubles ask of a host's paths.
/// The session that a path belongs to.
inline const datapath::FlowUser& owner_of(const FakePath& path) {
  const auto* rail = dynamic_cast<datapath::Rail*>(&path.events());
  return rail != nullptr ? static_cast<const datapath::FlowUser&>(rail->host())
                         : dynamic_cast<datapath::Flow&>(path.events()).user();
}

/// Whether one of its kind has been in use: before, each transport is tried once.
inline bool was_used(const FakePath& path) {
  const auto* rail = dynamic_cast<datapath::Rail*>(&path.events());
  return rail != nullptr ? rail->was_used() : dynamic_cast<datapath::Flow&>(path.events()).was_usable();
}

}  // namespace fairlead::simulation
