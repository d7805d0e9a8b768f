// A service whose tenants are known by their keys, and sessions of each with it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/command/command_pair.h"
#include "tests/keys_file.h"

namespace fairlead {

/// Every way, with a thread for each session and its turns at the device.
inline std::vector<CommandWay> shared_ways() {
  std::vector<CommandWay> all = command_ways();
  std::erase_if(all, [](const CommandWay& way) { return way.where == command::ServiceConfig::Where::kInTurn; });
  return all;
}

/// The same, where the device is a GPU.
inline std::vector<CommandWay> shared_cuda_ways() {
  std::vector<CommandWay> all = cuda_command_ways();
  std::erase_if(all, [](const CommandWay& way) { return way.where == command::ServiceConfig::Where::kInTurn; });
  return all;
}

class CommandTenants : public CommandPair {
 protected:
  void SetUp() override {
    if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  }

  /// A service that knows who comes, and `begin()` sessions with it.
  void serve(std::vector<command::Tenant> tenants, command::Sharing sharing = command::Sharing::kBestEffort,
             std::chrono::milliseconds longest_turn = std::chrono::seconds(60)) {
    change_server = [this](EngineConfig& config) { config.keys_file = keys_.path(); };
    command::ServiceConfig config;
    config.tenants = std::move(tenants);
    config.sharing = sharing;
    config.longest_turn = longest_turn;
    start(config, device_bytes, false);
  }
  /// One of `principal`'s, with an engine of its own.
  Result<command::Session> begin(const std::string& principal, command::SessionOptions options = {}) {
    return command::Session::connect(engine_of(principal), service->listen_address(), patient(std::move(options)));
  }
  /// Another one, until the test ends.
  Engine& engine_of(const std::string& principal) {
    EngineConfig config = config_for(GetParam().way);
    config.keys_file = keys_.path();
    config.principal = principal;
    put_on_wire(config);
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().to_string();
    return engines_.emplace_back(std::move(*engine));
  }
  void TearDown() override {
    kernels.signals().open.store(true);
    engines_.clear();
    CommandPair::TearDown();
  }
  command::TenantStats stats_of(const std::string& name) const {
    for (command::TenantStats& each : service->tenants()) {
      if (each.name == name) return each;
    }
    ADD_FAILURE() << "there is no tenant " << name;
    return {};
  }
  static void expect_works(command::Session& of) {
    command::Channel channel = open(of);
    const command::Handle handle = of.new_handle();
    std::array<std::byte, 64> bytes{};
    must(channel.allocate(handle, 64));
    must(channel.fill(handle, 0, 64, 9));
    must(channel.copy_out(bytes, handle, 0));
    must(channel.release(handle));
    expect_fine(channel);
    EXPECT_EQ(bytes[63], std::byte{9});
  }

  std::uint64_t device_bytes = std::uint64_t{16} << 20;  // what a session may have of it
  test::KeysFile keys_{test::keys_line("trainer", '1') + test::keys_line("store", '2') + test::keys_line("guest", '3')};

 private:
  std::vector<Engine> engines_;
};

}  // namespace fairlead
