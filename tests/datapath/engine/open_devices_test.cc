#include "datapath/engine/open_devices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string_view>

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

}  // namespace
}  // namespace fairlead::datapath
