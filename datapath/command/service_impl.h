// Behind command::Service: its engine, the thread that takes the engine's events, and the sessions.
//
// Threads: start and stop by the owner; stats and the address from any; all else on the service's thread.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "datapath/command/bodies.h"
#include "datapath/command/served_peer.h"
#include "fairlead/command_service.h"
#include "fairlead/engine.h"

namespace fairlead::datapath::command {

class ServiceImpl final : public fairlead::command::ServiceBody {
 public:
  ServiceImpl(Engine engine, fairlead::command::ServiceConfig config);
  ~ServiceImpl() override { stop(); }

  void start();
  void stop() noexcept;
  [[nodiscard]] std::string listen_address() const { return engine_.listen_address(); }
  [[nodiscard]] Engine& engine() noexcept { return engine_; }
  [[nodiscard]] fairlead::command::ServiceStats stats() const;
  [[nodiscard]] std::vector<fairlead::command::TenantStats> tenants() const { return tenants_.stats(); }
  Status set_tenants(std::vector<fairlead::command::Tenant> tenants);
  void drain() noexcept { draining_.store(true); }

 private:
  using Served = std::pair<Peer, std::unique_ptr<ServedPeer>>;

  void thread_main();
  void handle(const Peer& peer, Event event);
  [[nodiscard]] ServedPeer* session_of(const Peer& peer);
  void begin(const Peer& peer);
  void turn_away(Peer peer, const Status& why);
  /// What is left to do in any.
  ServedPeer::Left run_all();
  void drop_ended();

  Engine engine_;
  const fairlead::command::ServiceConfig config_;
  const ServerSession::Terms terms_;
  const std::shared_ptr<ModuleCache> modules_ = std::make_shared<ModuleCache>(config_.module_cache_bytes);
  ServiceCounters counters_;
  std::optional<Turnstile> turnstile_;
  Tenants tenants_;
  std::list<Served> sessions_;
  std::list<Served>::iterator latest_ = sessions_.end();  // whose message came last
  std::vector<std::unique_ptr<ServedPeer>> leaving_;      // their threads run a last command
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> stopping_{false}, draining_{false};
  std::thread thread_;
};

}  // namespace fairlead::datapath::command
