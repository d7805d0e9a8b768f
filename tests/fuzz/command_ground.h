// Engines on the simulator's ground, for fuzzers of command channels: one that serves and some that connect to it, and
// connections that end without a word.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datapath/engine/handles.h"
#include "sim_host.h"
#include "sim_stream.h"
#include "tests/fuzz/must.h"

namespace fairlead::fuzz {

class CommandGround {
 public:
  static constexpr std::size_t kMaxMessage = 1 << 16;

  /// Clients by name, from 1 on; each is a principal of that name.
  explicit CommandGround(const std::vector<std::string>& clients) : world_(1), wire_(world_) {
    there_ = this;
    simulation::Habits habits;
    habits.can.max_message = 8192;
    habits.can.max_segments = 4;
    habits.can.max_outstanding = 32;
    EngineConfig config;
    config.max_message_bytes = kMaxMessage;
    config.peer_timeout = std::chrono::milliseconds(100);
    std::string keys;
    for (std::size_t i = 0; i < clients.size(); ++i) {
      keys += clients[i] + " " + std::string(64, static_cast<char>('1' + i)) + "\n";
    }
    const auto start = [&](const std::string& name, const std::string& principal) {
      config.name = name;
      config.principal = principal;
      hosts_.push_back(
          std::make_shared<simulation::SimHost>(world_, wire_, config, std::vector<simulation::Habits>{habits}, keys));
    };
    start("server", "");
    for (const std::string& name : clients) start(name, name);
  }
  /// Nobody has a peer of theirs any more.
  ~CommandGround() {
    for (const auto& host : hosts_) host->die();
    links_.clear();
    for (const auto& host : hosts_) host->release();
    for (const auto& host : hosts_) host->regions().shutdown();
    for (const auto& host : hosts_) must(host.use_count() == 1);
  }
  CommandGround(const CommandGround&) = delete;
  CommandGround& operator=(const CommandGround&) = delete;

  [[nodiscard]] static std::chrono::steady_clock::time_point now() { return there_->world_.now(); }
  /// A peer of the client's, which is not ready yet.
  [[nodiscard]] Peer connect(std::size_t client) {
    simulation::SimStream::Pair streams = simulation::SimStream::pair(world_);
    Link link{client, hosts_[client]->start(std::move(streams.ends[0]), true), nullptr};
    link.at_server = hosts_[0]->start(std::move(streams.ends[1]), false);
    links_.push_back(link);
    return datapath::make_peer(link.at_client);
  }
  /// The client's latest connection ends without a word: one end notices, or both.
  void lose(std::size_t client, bool at_client, bool at_server) {
    const auto latest = std::find_if(links_.rbegin(), links_.rend(), [=](const Link& l) { return l.client == client; });
    if (latest == links_.rend()) return;
    const Status why{Code::kPeerDied, "the connection was dropped"};
    if (at_client) latest->at_client->abandon(why);
    if (at_server) latest->at_server->abandon(why);
  }

  /// Goes on until `done`: hear(peer, event) gets what comes to the server, then it has a turn(). Where nothing happens
  /// time goes fast.
  template <typename Done, typename Hear, typename Turn>
  bool run(Done done, Hear hear, Turn turn, int rounds) {
    for (int idle = 0; rounds != 0; --rounds) {
      if (done()) return true;
      bool did = false;
      for (const auto& host : hosts_) did |= host->step();
      Event event;
      for (std::size_t i = 0; i < links_.size(); ++i) {
        while (links_[i].at_server->take_event(event)) {
          hear(datapath::make_peer(links_[i].at_server), std::exchange(event, Event()));
        }
      }
      turn();
      idle = did ? 0 : idle + 1;
      world_.advance(std::chrono::microseconds(did ? 5 : idle < 50 ? 100 : 2000));
    }
    return false;
  }

 private:
  struct Link {
    std::size_t client = 0;
    std::shared_ptr<datapath::SessionImpl> at_client, at_server;
  };

  inline static const CommandGround* there_ = nullptr;
  simulation::World world_;
  simulation::Wire wire_;
  std::vector<std::shared_ptr<simulation::SimHost>> hosts_;  // the server first
  std::vector<Link> links_;
};

}  // namespace fairlead::fuzz
