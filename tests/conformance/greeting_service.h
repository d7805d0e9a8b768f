// A service that greets its clients with what a test says, and answers nothing else: one of an older release, or one
// that tells nonsense.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"
#include "fairlead/engine.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {

class GreetingService {
 public:
  using Bytes = std::vector<std::byte>;

  /// What would be fine.
  static datapath::command::Welcome welcome(std::uint16_t version) {
    datapath::command::Welcome welcome{.version = version, .channels = 1, .credits = 64};
    welcome.payload_credit = welcome.payload_bytes = 4096;
    return welcome;
  }
  static Bytes of_version(std::uint16_t version) { return datapath::command::welcome_message(welcome(version)); }

  GreetingService(EngineConfig config, Bytes greeting) : greeting_(std::move(greeting)) {
    config.transport = "auto";
    config.listen = "127.0.0.1:0";
    Result<Engine> made = Engine::create(config);
    EXPECT_TRUE(made) << made.error().to_string();
    if (!made) std::abort();
    engine_.emplace(*std::move(made));
    thread_ = std::thread([this] { greet(); });
  }
  ~GreetingService() {
    engine_->shutdown();
    thread_.join();
  }
  [[nodiscard]] std::string address() const { return engine_->listen_address(); }

 private:
  void greet() {
    for (;;) {
      while (engine_->accept()) {
      }
      auto [peer, event] = engine_->next_event(kPatience);
      if (event.kind == Event::Kind::kNone) return;
      if (event.kind != Event::Kind::kMessage) continue;
      (void)peer.send(greeting_, datapath::command::kMessageValue, {.traffic = TrafficClass::kCommands});
    }
  }

  const Bytes greeting_;
  std::optional<Engine> engine_;
  std::thread thread_;
};

}  // namespace fairlead
