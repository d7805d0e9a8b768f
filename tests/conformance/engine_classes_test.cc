// Classes of traffic over every way across: an order of their own each, both ends, and failures that name them.
#include <gmock/gmock.h>

#include <array>

#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

constexpr TrafficClass kBoth[] = {TrafficClass::kBulk, TrafficClass::kCommands};

class EngineClasses : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void SetUp() override { start_with(EngineConfig().max_pending_events); }
  void start_with(std::size_t max_pending_events) {
    EngineConfig config = config_for(GetParam());
    config.max_pending_events = max_pending_events;
    EngineConfig server = config;
    server.transport = "auto";
    start(server, config);
  }
  /// The next notification or message.
  static Event next(Peer& at) {
    while (true) {
      Event event = at.next_event(kPatience);
      const bool news = event.kind == Event::Kind::kConnected || event.kind == Event::Kind::kPathChanged;
      if (!news) return event;
    }
  }
};

TEST_P(EngineClasses, EachKeepsItsOrderAtBothEnds) {
  constexpr std::uint64_t kRounds = 200, kBytes = 4096;
  auto [memory, remote] = target("region", kBytes);
  Memory source = buffer(*client, kBytes, 0x11);
  for (Peer* from : {&peer, &server_peer}) {
    Peer& to = from == &peer ? server_peer : peer;
    std::vector<Transfer> posted;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      const TransferOptions options{.notify = i, .traffic = kBoth[i % 2]};
      if (from == &peer && i % 4 < 2) {
        posted.push_back(peer.write(source, remote, options));
      } else {
        const std::vector<std::byte> bytes(i * 40, std::byte{7});
        posted.push_back(from->send(bytes, i, {.traffic = kBoth[i % 2]}));
      }
    }
    std::array<std::uint64_t, 2> due{0, 1};
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      const Event event = next(to);
      ASSERT_TRUE(event.kind == Event::Kind::kNotification || event.kind == Event::Kind::kMessage)
          << event.status.to_string() << " " << event.text;
      std::uint64_t& expected = due[static_cast<std::size_t>(event.traffic)];
      ASSERT_EQ(event.value, expected);
      expected += 2;
    }
    const Status done = wait_all(posted, kPatience);
    ASSERT_TRUE(done.ok()) << done.to_string();
  }
  EXPECT_THAT(peer.explain(), testing::HasSubstr("commands have a path of their own"));
  EXPECT_THAT(server_peer.explain(), testing::HasSubstr("commands have a path of their own"));
}

// Nobody has said anything of this class before, and one end's session is younger than the transfer.
TEST_P(EngineClasses, MayBeTheFirstOfASession) {
  Result<Peer> second = client->connect(server->listen_address());
  ASSERT_TRUE(second) << second.error().to_string();
  const Transfer command = second->send({}, 77, {.traffic = TrafficClass::kCommands});
  std::optional<Peer> accepted;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!(accepted = server->accept()) && std::chrono::steady_clock::now() < deadline) {
  }
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->next_event(kPatience).kind, Event::Kind::kConnected) << "the session begins with this";
  const Event event = next(*accepted);
  EXPECT_EQ(event.kind, Event::Kind::kMessage);
  EXPECT_EQ(event.value, 77u);
  EXPECT_EQ(event.traffic, TrafficClass::kCommands);
}

// The credits of one class are not those of the other: bulk that nobody takes does not stop commands.
TEST_P(EngineClasses, CommandsPassBulkThatNobodyTakes) {
  server.reset();
  client.reset();
  start_with(4);
  std::vector<Transfer> bulk;
  for (std::uint64_t i = 0; i < 100; ++i) bulk.push_back(peer.send({}, i));
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Transfer command = peer.send({}, 1000 + i, {.traffic = TrafficClass::kCommands});
    Event event;
    do {
      event = server_peer.next_event(kPatience);
      ASSERT_NE(event.kind, Event::Kind::kNone) << event.status.to_string();
    } while (event.traffic != TrafficClass::kCommands);
    EXPECT_EQ(event.value, 1000 + i);
  }
}

TEST_P(EngineClasses, ACommandMayFollowBulk) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  auto [memory, remote] = target("region", kBytes);
  Memory source = buffer(*client, kBytes, 0x11);
  for (int round = 0; round < 5; ++round) {
    std::memset(source.data(), round + 1, kBytes);
    const Transfer bulk = peer.write(source, remote);
    const Transfer command = peer.send({}, 1, {.traffic = TrafficClass::kCommands, .after = &bulk});
    ASSERT_EQ(next(server_peer).kind, Event::Kind::kMessage);
    EXPECT_EQ(memory.data()[kBytes - 1], static_cast<std::byte>(round + 1)) << "it is not there yet";
  }
  const Transfer refused = peer.write(source.slice(0, 1), remote);  // sizes that differ
  Transfer orphan = peer.send({}, 2, {.traffic = TrafficClass::kCommands, .after = &refused});
  const Status why = orphan.wait(kPatience);
  EXPECT_EQ(why.code(), Code::kOutOfRange);
  EXPECT_THAT(why.message(), testing::HasSubstr("the transfer that it was to follow failed: 1 local bytes"));
  const Transfer elsewhere = server_peer.send({}, 3);
  Transfer stranger = peer.send({}, 4, {.after = &elsewhere});
  EXPECT_THAT(stranger.wait(kPatience).message(), testing::HasSubstr("can only follow one of the same session"));
  const Transfer none;
  Transfer free = peer.send({}, 5, {.after = &none});
  EXPECT_TRUE(free.wait(kPatience).ok()) << "a handle that names no transfer is not waited for";
}

TEST_P(EngineClasses, EndWithTheirSession) {
  const Transfer first = peer.send({}, 1, {.traffic = TrafficClass::kCommands});
  Transfer waited = first;
  ASSERT_TRUE(waited.wait(kPatience).ok());
  peer.close();
  Transfer late = peer.send({}, 2, {.traffic = TrafficClass::kCommands});
  EXPECT_EQ(late.wait(kPatience).code(), Code::kUnavailable);
  EXPECT_EQ(next(server_peer).value, 1u);
  EXPECT_EQ(next(server_peer).kind, Event::Kind::kClosed);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineClasses, testing::ValuesIn(ways()),
                         [](const auto& way) { return way.param.name; });

}  // namespace
}  // namespace fairlead
