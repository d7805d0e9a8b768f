// What the API promises beyond moving bytes: the end of an engine, waiting, back-pressure, memory that is let go.
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/conformance/engine_pair.h"
#include "tests/no_threads.h"

namespace fairlead {
namespace {

using std::chrono::milliseconds;

class EngineApi : public testing::Test, public EnginePair {
 protected:
  void start_with(const std::function<void(EngineConfig&)>& change = [](EngineConfig&) {}) {
    EngineConfig config = config_for({"tcp", "tcp"});
    change(config);
    start(config, config);
  }
};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST_F(EngineApi, AnEngineThatWasShutDownSaysSo) {
  start_with([](EngineConfig& config) { config.listen = "127.0.0.1:0"; });  // both, so that both can accept
  auto [memory, remote] = target("region", 4096);
  Memory source = buffer(*client, 4096);
  std::thread waiting([&] {
    const Code ended = client->accept(kPatience).error().code();
    EXPECT_TRUE(ended == Code::kCancelled || ended == Code::kUnavailable) << "while it waited, or before";
    (void)client->next_event(kPatience);  // whatever it gives, it ends
  });
  std::thread another([&] { client->shutdown(); });
  client->shutdown();
  another.join();
  waiting.join();
  client->shutdown();
  for (const Status& status : {client->allocate(1).status(), client->register_memory(source.bytes()).status(),
                               client->publish("name", source, Access::kRemoteRead), client->unpublish("name"),
                               client->connect("127.0.0.1:1").status(), client->accept(kPatience).status()}) {
    EXPECT_EQ(status.code(), Code::kUnavailable) << status.to_string();
    EXPECT_NE(status.message().find("shut down"), std::string::npos) << status.to_string();
  }
  EXPECT_FALSE(client->accept());
  EXPECT_EQ(peer.state(), PeerState::kClosed);
  expect_failure(peer.write(source, remote), Code::kCancelled, "the engine was shut down");
}

TEST_F(EngineApi, WithoutAThreadThereIsNoEngine) {
  EngineConfig config = config_for({"tcp", "tcp"});
  config.listen = "127.0.0.1:0";
  config.lanes = 2;
  {
    const test::NoThreads none;
    const Result<Engine> refused = Engine::create(config);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
    EXPECT_NE(refused.error().message().find("no thread for lane 0 of the engine"), std::string::npos);
  }
  EXPECT_TRUE(Engine::create(config));
}

TEST_F(EngineApi, SessionsThatBeginBesideShutdownEnd) {
  start_with();
  for (int round = 0; round < 20; ++round) {  // the moment is short
    Result<Engine> engine = Engine::create(config_for({"tcp", "tcp"}));
    ASSERT_TRUE(engine) << engine.error().to_string();
    std::vector<Peer> begun[4];
    std::vector<std::thread> connecting;
    std::atomic<int> going{0};
    for (std::vector<Peer>& peers : begun) {
      connecting.emplace_back([&] {
        ++going;
        while (Result<Peer> next = engine->connect("127.0.0.1:1")) peers.push_back(*std::move(next));
      });
    }
    while (going < 4) std::this_thread::yield();
    engine->shutdown();
    for (std::thread& each : connecting) each.join();
    for (const std::vector<Peer>& peers : begun) {
      for (const Peer& each : peers) ASSERT_EQ(each.state(), PeerState::kClosed);
    }
  }
}

// For ThreadSanitizer: who polls drives, and the listener closes meanwhile.
TEST_F(EngineApi, AnApplicationMayPollThroughTheEnd) {
  start_with();
  std::atomic<bool> polling{false}, over{false};
  std::thread polls([&] {
    while (!over) {
      server->poll();
      polling = true;
    }
  });
  while (!polling) std::this_thread::yield();
  server->shutdown();
  over = true;
  polls.join();
  EXPECT_EQ(server_peer.state(), PeerState::kClosed);
}

TEST_F(EngineApi, AcceptWaits) {
  start_with();
  EXPECT_EQ(server->accept(milliseconds(1)).error().code(), Code::kDeadlineExceeded);
  std::thread connecting([&] { EXPECT_TRUE(client->connect(server->listen_address())); });
  Result<Peer> accepted = server->accept(kPatience);
  connecting.join();
  ASSERT_TRUE(accepted) << accepted.error().to_string();
  EXPECT_EQ(accepted->name(), client->config().name);
}

TEST_F(EngineApi, ASessionWhoseLastEventWasTakenSaysThatNoneWillCome) {
  start_with();
  peer.close();
  while (client->next_event(kPatience).second.kind != Event::Kind::kClosed) {
  }
  const Event none = peer.next_event(kPatience);  // not for so long: the other call took the last
  EXPECT_EQ(none.kind, Event::Kind::kNone);
  EXPECT_EQ(none.status.code(), Code::kUnavailable) << none.status.to_string();
}

TEST_F(EngineApi, WhoLookedARegionUpIsToldThatItIsWithdrawn) {
  start_with();
  auto [memory, remote] = target("region", 4096);
  EXPECT_FALSE(remote.withdrawn());
  ASSERT_TRUE(server->unpublish("region").ok());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!remote.withdrawn() && std::chrono::steady_clock::now() < deadline) client->poll();
  expect_failure(peer.write(buffer(*client, 4096), remote), Code::kProtectionError, "withdrew region 'region'");
  EXPECT_EQ(peer.stats().failovers, 0u);
  EXPECT_EQ(peer.stats().transfers_failed, 0u) << "nothing was sent";
}

TEST_F(EngineApi, SessionsAreBounded) {
  start_with([](EngineConfig& config) { config.max_sessions = 2; });
  Result<Peer> second = client->connect(server->listen_address());
  ASSERT_TRUE(second);
  ASSERT_TRUE(second->wait_ready(kPatience).ok());
  const Status here = client->connect(server->listen_address()).status();
  EXPECT_EQ(here.code(), Code::kResourceExhausted) << here.to_string();
  EXPECT_NE(here.message().find("max_sessions"), std::string::npos) << here.to_string();

  Result<Engine> other = Engine::create(config_for({"tcp", "tcp"}));
  ASSERT_TRUE(other);
  const Status there = other->connect(server->listen_address())->wait_ready(kPatience);
  EXPECT_EQ(there.code(), Code::kResourceExhausted) << there.to_string();
  EXPECT_NE(there.message().find("has 2 sessions already"), std::string::npos) << there.to_string();

  peer.close();
  ASSERT_EQ(next_of(peer, Event::Kind::kClosed).status.code(), Code::kOk);
  Status again;  // the server may not have seen the end yet
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  do {
    again = other->connect(server->listen_address())->wait_ready(kPatience);
  } while (again.code() == Code::kResourceExhausted && std::chrono::steady_clock::now() < deadline);
  EXPECT_TRUE(again.ok()) << again.to_string();
}

TEST_F(EngineApi, WaitsForAnyAndForAll) {
  start_with();
  auto [memory, remote] = target("region", 4096);
  Memory source = buffer(*client, 4096);
  std::vector<Transfer> transfers;
  for (std::uint64_t i = 0; i < 100; ++i) transfers.push_back(peer.write(source, remote, {.tag = i}));
  const std::size_t first = wait_any(transfers, kPatience);
  ASSERT_LT(first, transfers.size());
  EXPECT_TRUE(transfers[first].done());
  EXPECT_TRUE(wait_all(transfers, kPatience).ok());
  transfers[70] = peer.write(source, remote.slice(0, 8));
  EXPECT_EQ(wait_any(transfers), 0u);
  EXPECT_EQ(wait_all(transfers, kPatience).code(), Code::kOutOfRange) << "the first failure";
  EXPECT_EQ(wait_any({}), 0u);
  EXPECT_TRUE(wait_all({}).ok());

  const std::vector<Transfer> none(1);
  EXPECT_EQ(wait_any(none), 0u) << "a handle that names no transfer is done";
}

// The server takes no messages, so what was sent stays under way.
TEST_F(EngineApi, WhatIsUnderWayIsBounded) {
  start_with([](EngineConfig& config) {
    config.max_pending_events = 1;
    config.max_posted = 10;
    config.max_posted_bytes = 5000;
  });
  std::vector<Transfer> sent;
  const auto send = [&](std::size_t bytes) {
    sent.push_back(peer.send(std::vector<std::byte>(bytes), 1));
    return sent.back().done() ? sent.back().code() : Code::kOk;
  };
  const auto take_all = [&] {
    std::size_t due = 0;
    for (const Transfer& transfer : sent) due += transfer.done() && transfer.code() != Code::kOk ? 0 : 1;
    for (; due != 0; --due) (void)next_of(server_peer, Event::Kind::kMessage);
    for (Transfer& transfer : sent) (void)transfer.wait(kPatience);
    sent.clear();
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(send(1000), Code::kOk);
  (void)peer.lookup("none", kPatience);
  int refused = 0;
  while (send(1000) == Code::kOk) ASSERT_LT(++refused, 10) << "one or two have crossed";
  expect_failure(sent.back(), Code::kResourceExhausted, "max_posted_bytes");
  take_all();
  EXPECT_EQ(send(100'000), Code::kOk) << "one passes, however large";
  take_all();
  refused = 0;
  while (send(0) == Code::kOk) ASSERT_LT(++refused, 20);
  expect_failure(sent.back(), Code::kResourceExhausted, "max_posted)");
  take_all();
  EXPECT_EQ(send(10), Code::kOk);
  take_all();
}

TEST_F(EngineApi, RegisteredMemoryIsLetGoOnce) {
  start_with();
  auto [memory, remote] = target("region", 65536);
  std::vector<std::byte> own(65536, std::byte{7});
  std::atomic<int> released{0};
  Result<Memory> registered = client->register_memory(own, Access::kNone, [&] { ++released; });
  ASSERT_TRUE(registered);
  Memory slice = registered->slice(0, 100);
  Transfer last = peer.write(*registered, remote);
  *registered = Memory();
  EXPECT_EQ(released, 0) << "a slice and a transfer name it";
  EXPECT_TRUE(last.wait(kPatience).ok());
  last = Transfer();
  EXPECT_EQ(released, 0);
  slice = Memory();
  for (int i = 0; i < 1000 && released == 0; ++i)
    std::this_thread::sleep_for(milliseconds(10));  // the lane lets go, too
  EXPECT_EQ(released, 1);
  EXPECT_EQ(client->register_memory({}, Access::kNone, [&] { ++released; }).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(released, 1) << "it was never registered";
}

// Who asks for a report after the end gets none, and keeps nothing by it.
TEST_F(EngineApi, ATransferReportedAfterTheEndKeepsNothing) {
  start_with();
  auto [memory, remote] = target("region", 4096);
  std::vector<std::byte> own(4096);
  std::atomic<int> released{0};
  Result<Memory> mine = client->register_memory(own, Access::kNone, [&] { ++released; });
  ASSERT_TRUE(mine);
  client.reset();
  expect_failure(peer.write(*mine, remote, {.report = true}), Code::kCancelled, "the engine was shut down");
  *mine = Memory();
  remote = RemoteMemory();
  peer = Peer();
  EXPECT_EQ(released, 1) << "the engine is gone";
}

TEST_F(EngineApi, RangesThatTouchShareARegistration) {
  start_with();
  auto [memory, remote] = target("region", 4096);
  const std::uint64_t before = client->stats().registered_bytes;
  std::vector<std::byte> one(40'960), other(100);
  const std::span<std::byte> all(one);
  const std::vector<std::span<std::byte>> ranges{all.subspan(8192, 4096), all.first(4096), other,
                                                 all.subspan(4096, 5000)};
  Result<std::vector<Memory>> many = client->register_memory(ranges);
  ASSERT_TRUE(many) << many.error().to_string();
  ASSERT_EQ(many->size(), ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ((*many)[i].data(), ranges[i].data());
    EXPECT_EQ((*many)[i].size(), ranges[i].size());
    std::memset(ranges[i].data(), static_cast<int>(i + 1), 64);
    EXPECT_TRUE(peer.write((*many)[i].slice(0, 64), remote.slice(64 * i, 64)).wait(kPatience).ok());
    EXPECT_EQ(memory.data()[64 * i], static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(client->stats().registered_bytes - before, 8192u + 4096 + 100) << "what overlaps counts once";
  const std::vector<std::span<std::byte>> bad{all.first(10), {}};
  const Status refused = client->register_memory(bad).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("range 1 of 2"), std::string::npos) << refused.to_string();
  EXPECT_TRUE(client->register_memory(std::vector<std::span<std::byte>>{})->empty());
}

TEST_F(EngineApi, PartsOfAPreparedListArePosted) {
  start_with();
  constexpr std::uint32_t kBlocks = 16, kBytes = 512;
  auto [memory, remote] = target("blocks", kBlocks * kBytes);
  Memory source = buffer(*client, kBlocks * kBytes);
  fill_pattern(source.bytes(), 3);
  std::vector<Descriptor> blocks;
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    blocks.push_back({source.slice(i * kBytes, kBytes), remote.slice(i * kBytes, kBytes)});
  }
  Result<Prepared> list = peer.prepare_write(blocks);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->size(), kBlocks);
  const std::uint32_t some[] = {3, 1, 15};
  Transfer posted = peer.post(*list, some, {.notify = 9});
  EXPECT_EQ(posted.bytes(), 3 * kBytes);
  EXPECT_TRUE(posted.wait(kPatience).ok());
  EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, 9u);
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    const bool selected = std::find(std::begin(some), std::end(some), i) != std::end(some);
    const bool same = std::memcmp(memory.data() + i * kBytes, source.data() + i * kBytes, kBytes) == 0;
    EXPECT_EQ(same, selected) << "block " << i;
  }
  const std::uint32_t beyond[] = {0, 16};
  expect_failure(peer.post(*list, beyond), Code::kOutOfRange, "index 16 of a list of 16");
  EXPECT_TRUE(peer.post(*list, std::span<const std::uint32_t>()).wait(kPatience).ok()) << "nothing is done at once";
  expect_failure(peer.post(Prepared(), some), Code::kInvalidArgument, "empty handle");
}

class EngineMessages : public testing::TestWithParam<Way>, public EnginePair {};

TEST_P(EngineMessages, BytesAfterTheData) {
  EngineConfig server_config = config_for(GetParam());
  server_config.transport = "auto";
  start(server_config, config_for(GetParam()));
  auto [memory, remote] = target("region", 65536);
  Memory source = buffer(*client, 65536);
  std::vector<Transfer> transfers;
  const std::string large(10'000, 'x');
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::string text = round % 5 == 4 ? large : "request " + std::to_string(round);
    std::memset(source.data(), static_cast<int>(round + 1), source.size());
    Transfer write = peer.write(source, remote, {.notify = round, .notify_bytes = bytes_of(text)});
    const Event event = next_of(server_peer, Event::Kind::kNotification);
    EXPECT_EQ(event.value, round);
    EXPECT_EQ(event.data, bytes_of(text));
    EXPECT_EQ(memory.data()[65535], static_cast<std::byte>(round + 1)) << "what was written may be read";
    EXPECT_TRUE(write.wait(kPatience).ok());
  }
  EXPECT_TRUE(peer.read(source, remote, {.notify_bytes = bytes_of("read")}).wait(kPatience).ok());
  EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).data, bytes_of("read"));
  expect_failure(peer.send({}, 1, {.notify_bytes = bytes_of("x")}), Code::kInvalidArgument, "its own value");
}

// The server never takes its messages: it holds the bytes that it granted, and two messages at the very most. Once it
// takes them, all arrive.
TEST_P(EngineMessages, WhoTakesNoMessagesHoldsNoMoreThanItGranted) {
  constexpr std::size_t kBytes = 100'000, kMessages = 30;
  EngineConfig config = config_for(GetParam());
  config.max_pending_bytes = 3 * kBytes;
  config.max_message_bytes = kBytes;
  config.transport = "auto";
  start(config, config_for(GetParam()));
  std::vector<Transfer> sent;
  for (std::size_t i = 0; i < kMessages; ++i) {
    sent.push_back(peer.send(std::vector<std::byte>(kBytes, static_cast<std::byte>(i)), i));
  }
  // Time for what should not come: some turns of both ends, by questions and answers.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (server_peer.stats().messages_received < 3 && std::chrono::steady_clock::now() < deadline) server->poll();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(peer.lookup("none", kPatience).error().code(), Code::kNotFound);
  EXPECT_GE(server_peer.stats().messages_received, 3u);
  EXPECT_LE(server_peer.stats().messages_received, 5u);
  for (std::size_t i = 0; i < kMessages; ++i) {
    const Event event = next_of(server_peer, Event::Kind::kMessage);
    ASSERT_EQ(event.data.size(), kBytes);
    EXPECT_EQ(event.value, i);
    EXPECT_EQ(event.data.front(), static_cast<std::byte>(i));
    EXPECT_EQ(event.data.back(), static_cast<std::byte>(i));
  }
  for (Transfer& transfer : sent) EXPECT_TRUE(transfer.wait(kPatience).ok());
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineMessages, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
