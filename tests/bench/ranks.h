// The ranks of a group as threads of a test, each with an engine of its own, over tcp.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/collective/group.h"

namespace fairlead::bench {

inline EngineConfig config_of_rank(Progress progress = Progress::kApplication,
                                   std::chrono::milliseconds peer_timeout = EngineConfig().peer_timeout) {
  EngineConfig config;
  config.listen = "127.0.0.1:0";
  config.transport = "tcp";
  config.progress = progress;
  config.peer_timeout = peer_timeout;
  return config;
}

/// Runs `job` as each of the ranks; what each returned.
inline std::vector<Status> run_ranks(std::size_t ranks, const std::function<Status(Group&)>& job,
                                     Progress progress = Progress::kApplication,
                                     std::chrono::milliseconds peer_timeout = EngineConfig().peer_timeout) {
  std::vector<Engine> engines;
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < ranks; ++i) {
    Result<Engine> engine = Engine::create(config_of_rank(progress, peer_timeout));
    if (!engine) return {engine.error()};
    addresses.push_back(engine->listen_address());
    engines.push_back(*std::move(engine));
  }
  std::vector<Status> ended(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<Group> group = Group::join(&engines[rank], rank, addresses);
      ended[rank] = group ? job(*group) : group.error();
      engines[rank].shutdown();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

inline void expect_ok(const std::vector<Status>& ended) {
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    EXPECT_TRUE(ended[rank].ok()) << "rank " << rank << ": " << ended[rank].to_string();
  }
}

}  // namespace fairlead::bench
