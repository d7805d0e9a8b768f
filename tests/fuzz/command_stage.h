// A service of commands with two tenants, one that is true and one that lies: the program says what both say.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "datapath/command/served_peers.h"
#include "fairlead/executor_around.h"
#include "fairlead/host_executor.h"
#include "tests/fuzz/command_ground.h"

namespace fairlead::fuzz {

class CommandStage {
 public:
  static constexpr std::uint64_t kMemory = 1 << 16;  // of a tenant; so no kernel takes long
  static constexpr std::size_t kTrue = 1, kLiar = 2;

  CommandStage() : ground_({"true", "liar"}) {
    command::ServiceConfig terms;
    terms.where = command::ServiceConfig::Where::kInTurn;
    terms.channels = 4;
    terms.payload_credit = 40'000;
    terms.held_results = 60'000;
    terms.keep_away = std::chrono::seconds(1);
    for (const char* name : {"true", "liar"}) terms.tenants.push_back({.name = name, .memory_bytes = kMemory});
    terms.executors = [this](const Peer& peer) -> Result<std::unique_ptr<command::Executor>> {
      static const command::ExecutorFactory host = [] {
        command::HostExecutorConfig of_host;
        of_host.memory_bytes = 1 << 16;
        return command::host_executors(std::move(of_host));
      }();
      return std::unique_ptr<command::Executor>(std::make_unique<Counted>(*host(peer), live_));
    };
    service_ = std::make_unique<datapath::command::ServedPeers>(std::move(terms), CommandGround::kMaxMessage,
                                                                &CommandGround::now);
  }
  ~CommandStage() {
    service_.reset();
    must(live_ == 0);
  }
  CommandStage(const CommandStage&) = delete;
  CommandStage& operator=(const CommandStage&) = delete;

  [[nodiscard]] Peer connect(std::size_t tenant) { return ground_.connect(tenant); }
  void lose(std::size_t tenant, bool at_tenant, bool at_service) { ground_.lose(tenant, at_tenant, at_service); }
  template <typename Done>
  bool run(Done done, int rounds = 100'000) {
    return ground_.run(
        done, [this](const Peer& peer, Event event) { service_->handle(peer, std::move(event)); },
        [this] {
          service_->run_all();
          service_->drop_ended();
        },
        rounds);
  }
  [[nodiscard]] command::TenantStats tenant(const std::string& name) const {
    for (command::TenantStats& each : service_->tenants()) {
      if (each.name == name) return each;
    }
    std::abort();
  }
  [[nodiscard]] command::ServiceStats stats() const { return service_->stats(); }
  /// Devices that there are.
  [[nodiscard]] int live() const noexcept { return live_; }

 private:
  class Counted final : public command::ExecutorAround {
   public:
    Counted(std::unique_ptr<command::Executor> host, int& live) : ExecutorAround(std::move(host)), live_(live) {
      ++live_;
    }
    ~Counted() override { --live_; }

   private:
    int& live_;
  };

  CommandGround ground_;
  int live_ = 0;
  std::unique_ptr<datapath::command::ServedPeers> service_;
};

}  // namespace fairlead::fuzz
