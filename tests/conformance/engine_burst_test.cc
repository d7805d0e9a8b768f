// Bursts (fairlead/burst.h) over every way across: what was added lands, ends in order, and is told of together.
#include <atomic>
#include <thread>
#include <utility>

#include "fairlead/burst.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

constexpr std::size_t kTargetBytes = 65536;

/// Until `done`, or too late.
template <typename Done, typename Act>
bool until(Done done, Act act) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    act();
  }
  return true;
}

class EngineBurst : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig config = config_for(GetParam());
    EngineConfig server_config = config;
    server_config.transport = "auto";
    start(server_config, config);
    if (HasFatalFailure()) return;
    std::tie(there, remote) = target("there", kTargetBytes);
    here = buffer(*client, kTargetBytes);
    for (std::size_t i = 0; i < kTargetBytes; ++i) here.data()[i] = static_cast<std::byte>(i * 11 >> 2);
  }

  Memory there, here;
  RemoteMemory remote;
};

// Pieces of 1 to 100 bytes that cover the memory from its end to its beginning, some of them empty.
std::vector<std::pair<std::size_t, std::size_t>> pieces() {
  std::vector<std::pair<std::size_t, std::size_t>> all;
  for (std::size_t left = kTargetBytes, i = 0; left != 0; ++i) {
    const std::size_t length = i % 50 == 7 ? 0 : std::min(left, 1 + i * 37 % 100);
    left -= length;
    all.emplace_back(left, length);
  }
  return all;
}

TEST_P(EngineBurst, WhatWasAddedIsPlaced) {
  for (const bool reads : {false, true}) {
    SCOPED_TRACE(reads ? "reads" : "writes");
    Memory& to = reads ? here : there;
    const std::vector<std::byte> expected((reads ? there : here).data(), (reads ? there : here).data() + kTargetBytes);
    if (reads) std::memset(here.data(), 0, kTargetBytes);
    Burst burst = reads ? Burst::reads(peer) : Burst::writes(peer);
    const auto all = pieces();
    for (const auto& [at, length] : all) {
      const Status added = burst.add(here.slice(at, length), remote.slice(at, length));
      ASSERT_TRUE(added.ok()) << added.to_string();
    }
    EXPECT_EQ(burst.added(), all.size());
    const Status some = burst.wait(100, kPatience);
    EXPECT_TRUE(some.ok()) << some.to_string();
    EXPECT_GE(burst.ended(), 100u);
    const Status finished = burst.finish(kPatience);
    EXPECT_TRUE(finished.ok()) << finished.to_string();
    EXPECT_EQ(burst.ended(), all.size());
    EXPECT_TRUE(std::ranges::equal(to.bytes(), expected));
    EXPECT_TRUE(burst.finish().ok()) << "nothing was added since";
  }
  EXPECT_GE(peer.stats().bytes_written, kTargetBytes);
  EXPECT_GE(peer.stats().bytes_read, kTargetBytes);
}

TEST_P(EngineBurst, TheFirstGoesOutAloneAndTheRestWithTheBurst) {
  Burst burst = Burst::writes(peer, TrafficClass::kCommands);
  ASSERT_TRUE(burst.add(here.slice(0, 8), remote.slice(0, 8)).ok());
  const auto look = [&] { (void)client->next_event(); };
  EXPECT_TRUE(until([&] { return burst.ended() == 1; }, look)) << "nobody flushed it";
  ASSERT_TRUE(burst.add(here.slice(0, 8), remote.slice(0, 8)).ok());
  EXPECT_TRUE(until([&] { return burst.ended() == 2; }, look)) << "nothing was under way";
  {
    Burst left = Burst::writes(peer);
    for (std::size_t i = 1; i < 10; ++i) ASSERT_TRUE(left.add(here.slice(i * 8, 8), remote.slice(i * 8, 8)).ok());
    burst = std::move(left);  // the first one goes, with nothing in it
  }
  {
    const Burst dropped = std::move(burst);
    EXPECT_EQ(burst.add(here, remote).code(), Code::kInvalidArgument);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(burst.flush().code(), Code::kInvalidArgument);
    EXPECT_EQ(burst.finish().code(), Code::kInvalidArgument);
    EXPECT_EQ(burst.ended(), 0u);
  }
  EXPECT_TRUE(until([&] { return peer.stats().transfers_under_way == 0; }, look));
  // Counters order nothing; who waits for a transfer may look at what those before it wrote.
  ASSERT_TRUE(peer.write(here.slice(80, 8), remote.slice(80, 8)).wait(kPatience).ok());
  EXPECT_EQ(std::memcmp(here.data(), there.data(), 80), 0) << "a burst that goes sends what it has";
}

TEST_P(EngineBurst, WhatIsKnownToBeGoneIsNotAdded) {
  auto [other, gone] = target("gone", 4096);
  Burst burst = Burst::writes(peer);
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(burst.add(here.slice(0, 64), remote.slice(0, 64)).ok());
  ASSERT_TRUE(burst.finish(kPatience).ok());
  ASSERT_TRUE(server->unpublish("gone").ok());
  ASSERT_TRUE(until([&] { return gone.withdrawn(); }, [&] { (void)client->next_event(std::chrono::milliseconds(1)); }));
  EXPECT_EQ(burst.add(here.slice(0, 64), gone.slice(0, 64)).code(), Code::kProtectionError) << "known to be gone";
  EXPECT_EQ(burst.added(), 3u);
  ASSERT_TRUE(burst.add(here.slice(0, 64), remote.slice(0, 64)).ok()) << "that one was not added";
  EXPECT_TRUE(burst.finish(kPatience).ok());
  EXPECT_EQ(burst.ended(), 4u);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineBurst, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

class BurstLimits : public testing::Test, public EnginePair {
 protected:
  /// Nobody drives but who waits.
  void start_idle(std::size_t max_posted) {
    EngineConfig config = config_for({"tcp", "tcp"});
    start(config, config);
    if (HasFatalFailure()) return;
    config.progress = Progress::kApplication;
    config.max_posted = max_posted;
    Result<Engine> idle_engine = Engine::create(config);
    ASSERT_TRUE(idle_engine) << idle_engine.error().to_string();
    idle.emplace(*std::move(idle_engine));
    Result<Peer> connected = idle->connect(server->listen_address());
    ASSERT_TRUE(connected) << connected.error().to_string();
    other = *connected;
    ASSERT_TRUE(other.wait_ready(kPatience).ok());
    there = buffer(*server, kTargetBytes);
    ASSERT_TRUE(server->publish("there", there, Access::kRemoteReadWrite).ok());
    Result<RemoteMemory> found = other.lookup("there", kPatience);
    ASSERT_TRUE(found) << found.error().to_string();
    remote = *found;
    here = buffer(*idle, kTargetBytes, 7);
  }

  std::optional<Engine> idle;
  Peer other;
  Memory there, here;
  RemoteMemory remote;
};

TEST_F(BurstLimits, AFullGroupWaitsForRoom) {
  ASSERT_NO_FATAL_FAILURE(start_idle(2));
  Burst burst = Burst::writes(other);
  std::size_t added = 0;
  const auto add = [&] { return burst.add(here.slice(added * 16, 16), remote.slice(added * 16, 16)); };
  for (; added < 1 + 2 * Burst::kGroup; ++added) ASSERT_TRUE(add().ok()) << added;
  const Status full = add();  // one and a group are under way, a group is gathered
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full.to_string();
  EXPECT_NE(full.message().find("max_posted"), std::string::npos);
  EXPECT_EQ(burst.flush().code(), Code::kResourceExhausted);
  EXPECT_EQ(burst.added(), added);
  EXPECT_EQ(burst.ended(), 0u);
  const Status one = burst.wait(1, kPatience);
  EXPECT_TRUE(one.ok()) << one.to_string();
  ASSERT_TRUE(add().ok()) << "there is room again";
  ++added;
  const Status finished = burst.finish(kPatience);
  EXPECT_TRUE(finished.ok()) << finished.to_string();
  EXPECT_EQ(burst.ended(), added);
  EXPECT_EQ(std::memcmp(here.data(), there.data(), added * 16), 0);
}

TEST_F(BurstLimits, AWaitFlushesAlsoForWhatHasEnded) {
  ASSERT_NO_FATAL_FAILURE(start_idle(100));
  Burst burst = Burst::writes(other);
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(burst.add(here.slice(i * 8, 8), remote.slice(i * 8, 8)).ok());
  EXPECT_EQ(other.stats().transfers_under_way, 1u) << "two are gathered";
  EXPECT_TRUE(burst.wait(0).ok());
  EXPECT_EQ(other.stats().transfers_under_way, 2u);
  EXPECT_TRUE(burst.finish(kPatience).ok());
  EXPECT_EQ(std::memcmp(here.data(), there.data(), 24), 0);
}

TEST_F(BurstLimits, AFailureIsTheBurstsAndSaysWhere) {
  ASSERT_NO_FATAL_FAILURE(start_idle(100));
  Burst burst = Burst::writes(other);
  const auto add = [&] { return burst.add(here.slice(0, 64), remote.slice(0, 64)); };
  for (std::size_t i = 0; i < 2 + Burst::kGroup; ++i) ASSERT_TRUE(add().ok());
  idle->shutdown();
  const Status lost = burst.finish(kPatience);
  EXPECT_EQ(lost.code(), Code::kCancelled) << lost.to_string();
  EXPECT_NE(lost.message().find("operations 0 to 0 of the burst"), std::string::npos) << lost.to_string();
  EXPECT_EQ(burst.ended(), 2 + Burst::kGroup) << "the last one was gathered, and went out in vain";
  EXPECT_EQ(add().code(), Code::kCancelled);
}

TEST_F(BurstLimits, AWaitEndsInTime) {
  EngineConfig awake = config_for({"tcp", "tcp"});
  start(awake, awake);
  // What the target does not read: it is another engine that nobody drives.
  EngineConfig config = config_for({"tcp", "tcp"});
  config.progress = Progress::kApplication;
  config.listen = "127.0.0.1:0";
  Result<Engine> asleep = Engine::create(config);
  ASSERT_TRUE(asleep) << asleep.error().to_string();
  Result<Peer> to = client->connect(asleep->listen_address());
  ASSERT_TRUE(to) << to.error().to_string();
  Memory target = buffer(*asleep, 64);
  ASSERT_TRUE(asleep->publish("asleep", target, Access::kRemoteWrite).ok());
  std::optional<Peer> accepted;
  ASSERT_TRUE(until([&] { return accepted.has_value(); }, [&] { accepted = asleep->accept(); }));
  Result<RemoteMemory> found = Status(Code::kNotFound, "not yet");
  std::atomic<bool> over{false};
  std::thread asking([&] {
    found = to->lookup("asleep", kPatience);
    over = true;
  });
  EXPECT_TRUE(until([&] { return over.load(); }, [&] { (void)asleep->next_event(); }));
  asking.join();
  ASSERT_TRUE(found) << found.error().to_string();
  Memory source = buffer(*client, 64, 3);
  Burst slow = Burst::writes(*to);
  ASSERT_TRUE(slow.add(source, *found).ok());
  const Status late = slow.finish(std::chrono::milliseconds(20));
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.to_string();
  EXPECT_NE(late.message().find("0 of 1 operations ended"), std::string::npos) << late.to_string();
  EXPECT_EQ(slow.ended(), 0u);
  ASSERT_TRUE(until([&] { return slow.ended() == 1; }, [&] { (void)asleep->next_event(); }));
  EXPECT_TRUE(slow.finish(kPatience).ok());
  EXPECT_EQ(target.data()[63], std::byte{3});
}

TEST_F(BurstLimits, MisusesAreNamed) {
  ASSERT_NO_FATAL_FAILURE(start_idle(100));
  Burst nobody = Burst::writes(Peer());
  EXPECT_EQ(nobody.add(here, remote).code(), Code::kInvalidArgument);
  EXPECT_TRUE(nobody.finish().ok());
  Burst burst = Burst::writes(other);
  Memory foreign = buffer(*client, 64);
  const std::pair<Status, const char*> all[] = {
      {burst.add(Memory(), remote), "the local memory is not valid"},
      {burst.add(here, RemoteMemory()), "the remote memory is not valid"},
      {burst.add(here.slice(0, 8), remote.slice(0, 9)), "8 local bytes for 9 remote bytes"},
      {burst.add(foreign, remote.slice(0, 64)), "registered with another engine"},
  };
  for (const auto& [status, words] : all) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(words), std::string::npos) << status.to_string();
  }
  EXPECT_EQ(burst.added(), 0u);
  ASSERT_TRUE(burst.add(here.slice(0, 64), remote.slice(0, 64)).ok()) << "none of them was added";
  EXPECT_EQ(burst.add(here.slice(0, 8), remote.slice(0, 9)).code(), Code::kOutOfRange) << "beside one that is known";
  EXPECT_EQ(burst.add(here.slice(0, 8), remote.slice(kTargetBytes, 8)).code(), Code::kInvalidArgument);
  EXPECT_TRUE(burst.finish(kPatience).ok());
  EXPECT_EQ(burst.ended(), 1u);
}

}  // namespace
}  // namespace fairlead
