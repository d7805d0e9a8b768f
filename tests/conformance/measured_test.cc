// Paths that are chosen by measurement, between two engines and over the transports that there are.
#include <thread>

#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

class MeasuredChoice : public testing::Test, public EnginePair {
 protected:
  void SetUp() override {
    if (test::over_memif()) GTEST_SKIP() << "these are between tcp and UDP";
  }
  void begin(const std::string& transport, PathChoice choice, std::size_t paths = 1) {
    EngineConfig server_config, client_config;
    for (EngineConfig* config : {&server_config, &client_config}) {
      config->transport = transport;
      config->pool_arena_bytes = std::size_t{4} << 20;
      config->verbs.packet_io = "udp";
    }
    client_config.choice = choice;
    client_config.paths = paths;
    start(server_config, client_config);
  }
  void wait_for_measurements(std::uint64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (peer.stats().paths_measured < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_GE(peer.stats().paths_measured, count) << peer.explain();
  }
  void move_some() {
    constexpr std::uint64_t kBytes = 1 << 20;
    auto [memory, remote] = target("slot", kBytes);
    Memory source = buffer(*client, kBytes);
    for (std::uint64_t value = 0; value < 20; ++value) {
      fill_pattern(source.bytes(), value);
      const Status sent = peer.write(source, remote, {.notify = value}).wait(kPatience);
      ASSERT_TRUE(sent.ok()) << sent.to_string();
      ASSERT_EQ(next_of(server_peer, Event::Kind::kNotification).value, value);
      ASSERT_EQ(std::memcmp(memory.data(), source.data(), kBytes), 0);
    }
    ASSERT_TRUE(server->unpublish("slot").ok());
  }
};

TEST_F(MeasuredChoice, EachWayIsMeasuredWhileThereIsNothingToDo) {
  begin("tcp,verbs:soft0", PathChoice::kMeasured);
  if (HasFatalFailure()) return;
  wait_for_measurements(2);
  if (HasFatalFailure()) return;
  EXPECT_NE(peer.explain().find("measured"), std::string::npos) << peer.explain();
  EXPECT_EQ(server_peer.stats().paths_measured, 0U) << "the other end knows nothing of it";
  move_some();
  EXPECT_EQ(client->stats().total.paths_measured, peer.stats().paths_measured);
}

TEST_F(MeasuredChoice, ThereIsTrafficFromTheBeginning) {
  begin("tcp,verbs:soft0", PathChoice::kMeasured, 2);
  if (HasFatalFailure()) return;
  move_some();
  wait_for_measurements(1);
  move_some();
  EXPECT_EQ(peer.state(), PeerState::kReady);
}

TEST_F(MeasuredChoice, NothingIsMeasuredWhereNobodyAsks) {
  begin("tcp", PathChoice::kRanked);
  if (HasFatalFailure()) return;
  move_some();
  EXPECT_EQ(peer.stats().paths_measured, 0U);
  EXPECT_EQ(peer.explain().find("measured"), std::string::npos) << peer.explain();
}

}  // namespace
}  // namespace fairlead
