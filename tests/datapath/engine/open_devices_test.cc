#include "datapath/engine/open_devices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <string_view>

#include "datapath/engine/factory.h"
#include "fairlead/engine.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

std::atomic<int> lines{0};
void count_lines(LogLevel, std::string_view line) {
  lines += line.starts_with("a peer offers verbs, but here verbs:soft0 is ") ? 1 : 0;
}

// Whoever says hello may come again and again.
TEST(OpenDevices, WhatPeersMayNotHaveIsSaidOnce) {
  EngineConfig config;
  config.forbid = {"verbs:soft0"};
  const auto regions = std::make_shared<RegionTable>();
  OpenDevices devices(*regions);
  set_log_sink(count_lines);
  for (int i = 0; i < 10; ++i) devices.open_for_peer({{"verbs:mlx5_0", "verbs", false, {}}}, config);
  set_log_sink(nullptr);
  EXPECT_EQ(lines, 1);
  EXPECT_TRUE(devices.offers().empty());
  devices.close();
}

// What a policy leaves out is listed all the same, with the word that does.
TEST(EngineDevices, SayWhatThePolicyLeavesOut) {
  const auto said_of = [](const EngineConfig& config, std::string_view transport) {
    const Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.status().to_string();
    std::string reason;
    for (const DeviceInfo& device : engine->devices()) {
      if (device.transport != transport) continue;
      EXPECT_FALSE(device.usable) << transport;
      reason = device.reason;
    }
    return reason;
  };
  EngineConfig config;
  config.forbid = {"shm", "software"};
  EXPECT_EQ(said_of(config, "shm"), "forbidden here (forbid: shm)");
  EXPECT_EQ(said_of(config, "verbs:soft0"), "forbidden here (forbid: software)");
  config.require = {"shm", "tcp"};
  EXPECT_EQ(said_of(config, "shm"), "forbidden here (forbid: shm)");
  config.forbid = {};
  config.require = {"shm", "software"};
  EXPECT_EQ(said_of(config, "tcp"), "not what is required here (require: shm,software)");
  config.require = {"tcp"};
  const DeviceInfo tcp = list_devices(config, {}).back();
  EXPECT_TRUE(tcp.usable);
  EXPECT_EQ(tcp.reason, "works everywhere");
}

}  // namespace
}  // namespace fairlead::datapath
