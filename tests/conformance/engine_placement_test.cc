// Engines put where they are told: threads and memory, as the system sees them.
#include <gmock/gmock.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/index_list.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct ThreadSeen {
  std::string name;
  std::vector<unsigned> cpus;
};

/// All of this process, by /proc.
std::map<std::string, ThreadSeen> threads() {
  std::map<std::string, ThreadSeen> all;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::ifstream status(entry.path() / "status");
    ThreadSeen seen;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:")) seen.name = line.substr(6);
      if (!line.starts_with("Cpus_allowed_list:")) continue;
      if (const Result<std::vector<unsigned>> cpus = parse_index_list(line.substr(18))) seen.cpus = *cpus;
    }
    if (!seen.cpus.empty()) all[entry.path().filename()] = seen;  // else it has just ended
  }
  return all;
}

bool is_lane(const ThreadSeen& thread) { return thread.name.starts_with("fairlead-lane"); }

std::vector<unsigned> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<unsigned> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

EngineConfig placed(const std::string& placement, std::size_t lanes = 1) {
  EngineConfig config;
  config.transport = "tcp";
  config.placement = placement;
  config.lanes = lanes;
  config.pool_arena_bytes = std::size_t{4} << 20;
  return config;
}

class EnginePlacement : public testing::Test, public EnginePair {
 protected:
  void SetUp() override {
    if (cpus.empty()) GTEST_SKIP() << "this process's affinity cannot be read";
  }
  /// CPUs of lanes' threads that the process has now.
  static std::multiset<std::vector<unsigned>> of_lanes() {
    std::multiset<std::vector<unsigned>> all;
    for (const auto& [id, thread] : threads()) {
      if (is_lane(thread)) all.insert(thread.cpus);
    }
    return all;
  }

  const std::vector<unsigned> cpus = own_cpus();
};

TEST_F(EnginePlacement, LanesRunOnTheCoresThatAreNamed) {
  const unsigned last = cpus.back(), first = cpus.front();
  Result<Engine> engine = Engine::create(placed("cores=" + std::to_string(first) + "," + std::to_string(last), 2));
  ASSERT_TRUE(engine) << engine.error().to_string();
  const PlacementReport report = engine->placement();
  ASSERT_EQ(report.lanes.size(), 2U);
  EXPECT_TRUE(report.lanes[0].pinned && report.lanes[1].pinned) << report.to_string();
  EXPECT_THAT(report.lanes[0].cpus, ElementsAre(first));
  EXPECT_THAT(report.lanes[1].cpus, ElementsAre(last));
  const std::multiset<std::vector<unsigned>> expected{{first}, {last}};
  EXPECT_EQ(of_lanes(), expected) << "as /proc has it";
  EXPECT_EQ(own_cpus(), cpus) << "who created it stays where it was";
}

TEST_F(EnginePlacement, ThreadsOfDevicesThatALaneOpensAreNotPinnedWithIt) {
  if (test::over_memif()) GTEST_SKIP() << "DPDK places the threads of its ports";
  if (cpus.size() < 2) GTEST_SKIP() << "there is one CPU alone";
  if (std::getenv("FAIRLEAD_CONFORMANCE_DEVICE") != nullptr) GTEST_SKIP() << "softroce's port is that device's";
  EngineConfig server_config = placed("cores=" + std::to_string(cpus.front()), lanes_under_test());
  server_config.transport = "auto";
  server_config.progress = Progress::kThread;  // a lane's thread opens what the peer asks for
  EngineConfig client_config = placed("off");
  client_config.transport = "verbs:soft0";
  client_config.failover = false;
  start(std::move(server_config), std::move(client_config));
  if (HasFatalFailure()) return;
  std::size_t pinned = 0;
  for (const auto& [id, thread] : threads()) {
    if (thread.cpus == std::vector{cpus.front()}) {
      EXPECT_TRUE(is_lane(thread)) << thread.name;
      ++pinned;
    } else {
      EXPECT_EQ(thread.cpus, cpus) << thread.name;
    }
  }
  EXPECT_EQ(pinned, lanes_under_test());
}

TEST_F(EnginePlacement, ThatIsOffLeavesThreadsAlone) {
  Result<Engine> engine = Engine::create(placed("off", 2));
  ASSERT_TRUE(engine) << engine.error().to_string();
  for (const auto& [id, thread] : threads()) EXPECT_EQ(thread.cpus, cpus) << thread.name;
  const PlacementReport report = engine->placement();
  EXPECT_FALSE(report.lanes[0].pinned);
  EXPECT_EQ(report.lanes[1].cpus, cpus);
  EXPECT_FALSE(report.pool_node);
}

TEST_F(EnginePlacement, LeavesTheApplicationsThreadAlone) {
  EngineConfig config = placed("cores=" + std::to_string(cpus.front()));
  config.progress = Progress::kApplication;
  Result<Engine> engine = Engine::create(config);
  ASSERT_TRUE(engine) << engine.error().to_string();
  engine->poll();
  EXPECT_EQ(own_cpus(), cpus);
  EXPECT_THAT(of_lanes(), IsEmpty());
  const PlacementReport report = engine->placement();
  EXPECT_FALSE(report.lanes[0].pinned);
  EXPECT_THAT(report.lanes[0].reason, HasSubstr("kApplication"));
}

TEST_F(EnginePlacement, AutomaticallyPinsNothingOnOneNode) {
  Result<Engine> engine = Engine::create(placed("auto", 2));
  ASSERT_TRUE(engine) << engine.error().to_string();
  const PlacementReport report = engine->placement();
  ASSERT_EQ(report.lanes.size(), 2U);
  EXPECT_FALSE(report.lanes[0].reason.empty());
  // In pairs: where a lane was pinned there was something to choose, and so for the pool.
  EXPECT_EQ(report.lanes[0].pinned, report.lanes[1].pinned);
  EXPECT_EQ(report.lanes[0].pinned, report.pool_node.has_value()) << report.to_string();
  if (fs::exists("/sys/devices/system/node/node1")) GTEST_SKIP() << "this machine has several nodes";
  EXPECT_FALSE(report.lanes[0].pinned) << report.to_string();
  for (const auto& [id, thread] : threads()) EXPECT_EQ(thread.cpus, cpus) << thread.name;
}

TEST_F(EnginePlacement, ThePoolIsOnTheNodeThatIsNamed) {
  std::ifstream nodes("/sys/devices/system/node/has_memory");
  std::string list;
  if (!std::getline(nodes, list)) GTEST_SKIP() << "the kernel knows no NUMA nodes";
  const Result<std::vector<unsigned>> parsed = parse_index_list(list);
  ASSERT_TRUE(parsed && !parsed->empty());
  const unsigned node = parsed->back();
  Result<Engine> engine = Engine::create(placed("node=" + std::to_string(node)));
  if (!engine) GTEST_SKIP() << engine.error().to_string();  // a cpuset without it
  EXPECT_THAT(engine->placement().pool_pages, IsEmpty()) << "there is no arena yet";
  Result<Memory> memory = engine->allocate(std::size_t{1} << 20);
  ASSERT_TRUE(memory) << memory.error().to_string();
  std::memset(memory->data(), 1, memory->size());
  const PlacementReport report = engine->placement();
  EXPECT_EQ(report.pool_node, node);
  EXPECT_TRUE(report.lanes[0].pinned) << report.to_string();
  if (!report.remarks.empty()) GTEST_SKIP() << report.remarks.front();  // mbind or move_pages is refused here
  ASSERT_GT(report.pool_pages.size(), node);
  EXPECT_NE(report.pool_pages[node], 0U);
}

TEST_F(EnginePlacement, WhatThisMachineDoesNotHaveIsRefusedInWords) {
  for (const auto& [placement, words] :
       {std::pair("node=4000", "NUMA nodes"), {"cores=4090", "CPU 4090"}, {"here", "auto, off, node=N, cores=LIST"}}) {
    const Result<Engine> engine = Engine::create(placed(placement));
    ASSERT_FALSE(engine) << placement;
    EXPECT_EQ(engine.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(engine.error().message()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace fairlead
