// Atomics on words of a peer, over every way across: each once, in order, whoever else uses the word.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

constexpr TrafficClass kBoth[] = {TrafficClass::kBulk, TrafficClass::kCommands};

class EngineAtomics : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig config = config_for(GetParam());
    EngineConfig server = config;
    server.transport = "auto";
    start(server, config);
    if (HasFatalFailure()) return;
    std::tie(memory, words) = target("words", kWords * 8, Access::kRemoteAtomic | Access::kRemoteRead);
  }
  [[nodiscard]] RemoteMemory word(std::size_t index) const { return words.slice(index * 8, 8); }
  [[nodiscard]] std::atomic_ref<std::uint64_t> here(std::size_t index) {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(memory.data())[index]);
  }

  static constexpr std::size_t kWords = 4;
  Memory memory;
  RemoteMemory words;
};

TEST_P(EngineAtomics, SayWhatTheWordHeld) {
  Transfer add = peer.fetch_add(word(1), 5);
  ASSERT_TRUE(add.wait(kPatience).ok()) << add.status().to_string();
  EXPECT_EQ(add.old_value(), 0u);
  Transfer swap = peer.compare_swap(word(1), 5, 50, {.traffic = TrafficClass::kCommands});
  ASSERT_TRUE(swap.wait(kPatience).ok());
  EXPECT_EQ(swap.old_value(), 5u);
  Transfer vain = peer.compare_swap(word(1), 5, 60);
  ASSERT_TRUE(vain.wait(kPatience).ok());
  EXPECT_EQ(vain.old_value(), 50u);
  EXPECT_EQ(here(0), 0u);
  EXPECT_EQ(here(1), 50u);
  EXPECT_EQ(peer.stats().atomics, 3u);
  EXPECT_EQ(server_peer.stats().atomics_served, 3u);
  Memory local = buffer(*client, 8);
  ASSERT_TRUE(peer.read(local, word(1)).wait(kPatience).ok());
  EXPECT_EQ(std::memcmp(local.data(), memory.data() + 8, 8), 0);
}

// More than may wait for their outcome at a time, from both sessions and classes, beside the owner's own.
TEST_P(EngineAtomics, AddUpWhoeverAdds) {
  constexpr std::uint64_t kAdds = 600, kOwn = 20'000;
  Result<Peer> second = client->connect(server->listen_address());
  ASSERT_TRUE(second);
  ASSERT_TRUE(second->wait_ready(kPatience).ok());
  Result<RemoteMemory> seen = second->lookup("words", kPatience);
  ASSERT_TRUE(seen);
  std::thread owner([&] {
    for (std::uint64_t i = 0; i < kOwn; ++i) here(0).fetch_add(1);
  });
  std::vector<Transfer> adds;
  for (std::uint64_t i = 0; i < kAdds; ++i) {
    const TransferOptions options{.traffic = kBoth[i % 2], .tag = i % 4};
    adds.push_back(i % 4 < 2 ? peer.fetch_add(word(0), 1, options) : second->fetch_add(seen->slice(0, 8), 1, options));
  }
  const Status done = wait_all(adds, kPatience);
  owner.join();
  ASSERT_TRUE(done.ok()) << done.to_string();
  EXPECT_EQ(here(0), kAdds + kOwn);
  std::vector<std::uint64_t> held;
  std::array<std::uint64_t, 4> least{};
  for (const Transfer& add : adds) {
    EXPECT_GE(add.old_value(), least[add.tag()]) << "in the order of posting within a class";
    held.push_back(least[add.tag()] = add.old_value());
  }
  std::ranges::sort(held);
  EXPECT_EQ(std::ranges::adjacent_find(held), held.end()) << "two found the same";
}

// Two takers of one lock, and what it guards.
TEST_P(EngineAtomics, ASwapIsALock) {
  constexpr int kRounds = 60;
  std::uint64_t guarded = 0;
  const auto take_turns = [&](Peer by, const RemoteMemory& lock, std::uint64_t name) {
    for (int i = 0; i < kRounds; ++i) {
      while (true) {
        Transfer taken = by.compare_swap(lock, 0, name);
        if (!taken.wait(kPatience).ok()) return;
        if (taken.old_value() == 0) break;
      }
      ++guarded;
      if (!by.compare_swap(lock, name, 0).wait(kPatience).ok()) return;
    }
  };
  Result<Peer> second = client->connect(server->listen_address());
  ASSERT_TRUE(second);
  ASSERT_TRUE(second->wait_ready(kPatience).ok());
  Result<RemoteMemory> seen = second->lookup("words", kPatience);
  ASSERT_TRUE(seen);
  std::thread other(take_turns, *second, seen->slice(16, 8), 2);
  take_turns(peer, word(2), 1);
  other.join();
  EXPECT_EQ(guarded, 2u * kRounds);
  EXPECT_EQ(here(2), 0u);
}

// What nobody takes does not stop atomics, nor do they stop what comes behind them, in either direction.
TEST_P(EngineAtomics, TakeNoCredits) {
  server.reset();
  client.reset();
  EngineConfig config = config_for(GetParam());
  config.max_pending_events = 4;
  EngineConfig of_server = config;
  of_server.transport = "auto";
  start(of_server, config);
  std::tie(memory, words) = target("words", kWords * 8, Access::kRemoteAtomic);
  ASSERT_TRUE(server_peer.send({}, 1).wait(kPatience).ok());
  ASSERT_TRUE(peer.send({}, 2).wait(kPatience).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(peer.fetch_add(word(0), 1).wait(kPatience).ok());
  Transfer there = server_peer.send({}, 3), here_again = peer.send({}, 4);
  EXPECT_TRUE(there.wait(std::chrono::seconds(5)).ok()) << "one event of four is untaken";
  EXPECT_TRUE(here_again.wait(std::chrono::seconds(5)).ok());
  EXPECT_EQ(next_of(peer, Event::Kind::kMessage).value, 1u);
  EXPECT_EQ(next_of(peer, Event::Kind::kMessage).value, 3u);
}

TEST_P(EngineAtomics, DoNotKeepASessionThatIsToEnd) {
  std::atomic<bool> ended = false;
  std::thread asking([&] {
    std::array<Transfer, 64> under_way;
    for (std::size_t i = 0;; ++i) {
      Transfer& next = under_way[i % under_way.size()];
      if (next.valid() && !next.wait(kPatience).ok()) break;
      next = peer.fetch_add(word(0), 1);
    }
    ended = true;
  });
  while (server_peer.stats().atomics_served < 100) std::this_thread::yield();
  server_peer.close(std::chrono::hours(1));
  Event event;
  while ((event = server_peer.next_event(kPatience)).kind != Event::Kind::kClosed && event.kind != Event::Kind::kNone) {
  }
  EXPECT_EQ(event.kind, Event::Kind::kClosed);
  EXPECT_TRUE(event.status.ok()) << event.status.to_string();
  asking.join();
  EXPECT_TRUE(ended);
}

TEST_P(EngineAtomics, FollowAWriteThatTheyAnnounce) {
  auto [area, remote] = target("area", 1 << 20);
  Memory source = buffer(*client, 1 << 20, 0x5a);
  const Transfer write = peer.write(source, remote);
  Transfer flag = peer.fetch_add(word(3), 1, {.traffic = TrafficClass::kCommands, .after = &write});
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (here(3) == 0 && std::chrono::steady_clock::now() < deadline) {
  }
  ASSERT_EQ(here(3), 1u);
  EXPECT_EQ(std::memcmp(area.data(), source.data(), 1 << 20), 0) << "all of it is there";
  EXPECT_TRUE(flag.wait(kPatience).ok());
}

TEST_P(EngineAtomics, MisusesAreNamed) {
  auto [plain, remote] = target("plain", 64);
  expect_failure(peer.fetch_add(remote.slice(0, 8), 1), Code::kPermissionDenied, "'plain' does not grant atomics");
  expect_failure(peer.fetch_add(words, 1), Code::kInvalidArgument, "32 bytes at 0 of region 'words' are no word");
  expect_failure(peer.fetch_add(words.slice(4, 8), 1), Code::kInvalidArgument, "8 bytes at 4");
  expect_failure(peer.compare_swap(RemoteMemory(), 0, 1), Code::kInvalidArgument, "not valid memory");
  expect_failure(peer.fetch_add(word(0), 1, {.notify = 1}), Code::kInvalidArgument, "notifies nobody");
  Result<Peer> second = client->connect(server->listen_address());
  ASSERT_TRUE(second);
  ASSERT_TRUE(second->wait_ready(kPatience).ok());
  expect_failure(second->fetch_add(word(0), 1), Code::kInvalidArgument, "another session");
  expect_failure(peer.write(buffer(*client, 8), word(0)), Code::kPermissionDenied, "does not grant writing");
  Memory odd = plain.slice(4, 16);
  const Status published = server->publish("odd", odd, Access::kRemoteAtomic);
  EXPECT_EQ(published.code(), Code::kInvalidArgument);
  EXPECT_THAT(published.message(), testing::HasSubstr("no multiple of 8"));
  std::array<std::uint64_t, 2> bytes{};
  Result<Memory> read_only = server->register_memory(std::as_writable_bytes(std::span(bytes)), Access::kRemoteRead);
  ASSERT_TRUE(read_only);
  EXPECT_EQ(server->publish("read only", *read_only, Access::kRemoteAtomic).code(), Code::kPermissionDenied);
  Result<Memory> both =
      server->register_memory(std::as_writable_bytes(std::span(bytes)), Access::kRemoteAtomic | Access::kLocalReadOnly);
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message(), testing::HasSubstr("contradict"));
  EXPECT_EQ(here(0), 0u);
}

TEST_P(EngineAtomics, AWordThatIsWithdrawnIsRefused) {
  ASSERT_TRUE(peer.fetch_add(word(0), 1).wait(kPatience).ok());
  ASSERT_TRUE(server->unpublish("words").ok());
  expect_failure(peer.fetch_add(word(0), 1), Code::kProtectionError, "words");
  EXPECT_EQ(here(0), 1u);
  EXPECT_EQ(peer.state(), PeerState::kReady);
}

TEST_P(EngineAtomics, WhatThePeerMayHaveDoneWhenItDiedIsUnknown) {
  std::vector<Transfer> adds;
  for (int i = 0; i < 200; ++i) adds.push_back(peer.fetch_add(word(0), 1));
  server.reset();
  std::uint64_t ended_well = 0, unknown = 0;
  for (Transfer& add : adds) {
    const Status end = add.wait(kPatience);
    ASSERT_TRUE(add.done());
    ended_well += end.ok() ? 1 : 0;
    unknown += end.code() == Code::kOutcomeUnknown ? 1 : 0;
  }
  EXPECT_GE(here(0), ended_well);
  EXPECT_LE(here(0), ended_well + unknown);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineAtomics, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
