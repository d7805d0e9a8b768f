// A path that dies under way: fenced, replaced, nothing lost, nothing doubled, nothing early.
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

using Kind = Event::Kind;

class Failover : public testing::Test, public EnginePair {
 protected:
  /// `client_io` is the client's packet port; it goes silent or loses packets.
  void begin(const std::string& client_io, bool failover = true, const std::string& server_io = "udp") {
    EngineConfig server = config_for({"server", "auto"});
    server.failover = true;
    server.verbs.packet_io = server_io;
    EngineConfig client = config_for({"client", "verbs:soft0"});
    client.failover = failover;
    client.verbs.packet_io = client_io;
    // Quick deaths, but not so quick that a thread which waits for a busy processor is taken for dead: the ack timeout
    // is 4.096 us * 2^13, eight times.
    client.verbs.ack_timeout = server.verbs.ack_timeout = 13;
    start(server, client);
    ASSERT_EQ(peer.transport(), "verbs:soft0") << peer.explain();
  }

  /// Writes slots with notifications until the path has changed so often, and 200 more; checks data and order at the
  /// reader. `acknowledged_by`: the class of the messages that the reader answers with.
  void notify_across_the_change(std::uint64_t at_least, std::uint64_t changes = 1,
                                TrafficClass acknowledged_by = TrafficClass::kBulk) {
    if (HasFatalFailure()) return;
    constexpr std::uint64_t kSlots = 64, kSlotBytes = 16384;
    auto [memory, remote] = target("slots", kSlots * kSlotBytes);
    Memory source = buffer(*client, kSlots * kSlotBytes);
    // Some are messages of their own behind the write, some the write takes along.
    const auto value = [](std::uint64_t number) { return number % 4 == 3 ? ~number : number; };
    std::atomic<std::uint64_t> total{UINT64_MAX};
    std::atomic<std::uint64_t> changed_there{0};
    std::thread reader([&, memory = memory] {
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      std::uint64_t expected = 0;
      while (expected < total.load() && std::chrono::steady_clock::now() < deadline) {
        const Event event = server_peer.next_event(std::chrono::milliseconds(100));
        if (event.kind == Kind::kPathChanged && event.traffic == TrafficClass::kBulk) ++changed_there;
        if (event.kind == Kind::kClosed) FAIL() << event.status.to_string();
        if (event.kind != Kind::kNotification) continue;
        ASSERT_EQ(event.value, value(expected));
        const std::byte* slot = memory.data() + (expected % kSlots) * kSlotBytes;
        for (std::size_t i = 0; i < kSlotBytes; i += 8) {
          std::uint64_t word;
          std::memcpy(&word, slot + i, 8);
          ASSERT_EQ(word, expected) << "byte " << i;
        }
        ++expected;
        server_peer.send({}, expected, {.traffic = acknowledged_by});
      }
      EXPECT_EQ(expected, total.load());
    });
    std::uint64_t posted = 0, acknowledged = 0;
    std::uint64_t changed = 0, changed_for_commands = 0;
    std::string why;  // of the first
    std::uint64_t after = 0;
    std::vector<Transfer> transfers(kSlots);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while ((after < 200 || posted < at_least) && std::chrono::steady_clock::now() < deadline) {
      while (posted - acknowledged >= kSlots) {
        Event event = peer.next_event(kPatience);
        if (event.kind == Kind::kMessage) {
          ASSERT_EQ(event.value, ++acknowledged);
          ASSERT_EQ(event.traffic, acknowledged_by);
        }
        if (event.kind == Kind::kPathChanged && event.traffic == TrafficClass::kBulk) {
          if (changed++ == 0) why = event.text;
        } else if (event.kind == Kind::kPathChanged) {
          ++changed_for_commands;
        }
        ASSERT_NE(event.kind, Kind::kClosed) << event.status.to_string();
        ASSERT_NE(event.kind, Kind::kNone) << "stalled at " << posted << " of which " << acknowledged << " were seen";
      }
      const std::uint64_t slot = posted % kSlots;
      if (transfers[slot].valid()) {
        ASSERT_TRUE(transfers[slot].wait(kPatience).ok()) << transfers[slot].status().to_string();
      }
      std::byte* bytes = source.data() + slot * kSlotBytes;
      for (std::size_t i = 0; i < kSlotBytes; i += 8) std::memcpy(bytes + i, &posted, 8);
      transfers[slot] = peer.write(source.slice(slot * kSlotBytes, kSlotBytes),
                                   remote.slice(slot * kSlotBytes, kSlotBytes), {.notify = value(posted)});
      ++posted;
      after += changed >= changes ? 1 : 0;
    }
    total = posted;
    for (Transfer& transfer : transfers) EXPECT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
    reader.join();
    EXPECT_EQ(changed, changes) << "in " << posted << " transfers";
    EXPECT_EQ(changed_there, changes);
    const std::string_view carried_by = changes % 2 == 1 ? "tcp" : "verbs:soft0";
    EXPECT_EQ(peer.transport(), carried_by);
    EXPECT_EQ(server_peer.transport(), carried_by);
    EXPECT_NE(why.find("verbs:soft0 -> tcp"), std::string::npos) << why;
    EXPECT_EQ(changed_for_commands, acknowledged_by == TrafficClass::kCommands ? changes : 0);
    EXPECT_EQ(peer.stats().failovers, (changes + 1) / 2 + changed_for_commands);
    EXPECT_EQ(peer.stats().failbacks, changes / 2);
    EXPECT_EQ(peer.stats().transfers_failed, 0u);
  }
};

TEST_F(Failover, ClientsPortGoesSilent) {
  begin("udp,silent_after=3000");
  notify_across_the_change(500);
  // A test that takes longer has tried the port again meanwhile: another path over it may live, or have died as well.
  std::uint64_t lost = 0;  // by the end that saw the path die first; the other is told
  for (const auto& [engine, lane] : {std::pair(&*client, peer.lane()), std::pair(&*server, server_peer.lane())}) {
    for (const TransportStats& each : engine->stats().transports) {
      if (each.lane != lane) continue;
      const bool silent = each.transport == "verbs:soft0";
      if (silent) lost += each.paths_lost;
      const std::uint64_t paths = each.transport == "tcp" ? 1 : 0;
      EXPECT_TRUE(silent || (each.paths == paths && each.paths_lost == 0)) << each.transport << ": " << each.paths;
      EXPECT_GE(each.paths_opened, each.paths_lost + each.paths) << each.transport;
    }
  }
  EXPECT_GT(lost, 0U);
}

TEST_F(Failover, ServersPortGoesSilent) {
  begin("udp", true, "udp,silent_after=3000");
  notify_across_the_change(500);
}

// Each class has its own path, which dies with the port, is fenced and replaced by itself.
TEST_F(Failover, BothClassesOutliveAClientsPort) {
  begin("udp,silent_after=3000");
  notify_across_the_change(500, 1, TrafficClass::kCommands);
}

TEST_F(Failover, BothClassesOutliveAServersPort) {
  begin("udp", true, "udp,silent_after=3000");
  notify_across_the_change(500, 1, TrafficClass::kCommands);
}

TEST_F(Failover, GoesBackOnceAClientsPortSpeaksAgain) {
  begin("udp,silent_after=3000,silent_ms=2500");
  notify_across_the_change(500, 2);
}

TEST_F(Failover, GoesBackOnceAServersPortSpeaksAgain) {
  begin("udp", true, "udp,silent_after=3000,silent_ms=2500");
  notify_across_the_change(500, 2);
}

TEST_F(Failover, SilenceAtManyPointsLosesNothing) {
  for (const int packets : {40, 41, 43, 47, 60, 97, 150, 333}) {
    SCOPED_TRACE(packets);
    begin("udp,silent_after=" + std::to_string(packets) + ",drop=0.01,seed=" + std::to_string(packets));
    notify_across_the_change(100);
    client.reset();
    server.reset();
    if (HasFailure()) return;
  }
}

TEST_F(Failover, IsRefusedWhereItIsSwitchedOff) {
  begin("udp,silent_after=2000", false);
  const std::size_t size = std::size_t{4} << 20;
  auto [memory, remote] = target("region", size);
  Memory source = buffer(*client, size, 1);
  Transfer transfer;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    transfer = peer.write(source, remote);
    if (!transfer.wait(kPatience).ok()) break;
  }
  EXPECT_EQ(transfer.code(), Code::kUnavailable) << transfer.status().to_string();
  EXPECT_NE(transfer.status().message().find("failover is off"), std::string::npos) << transfer.status().message();
  Event end;
  while ((end = peer.next_event(kPatience)).kind != Kind::kClosed && end.kind != Kind::kNone) {
  }
  EXPECT_EQ(end.kind, Kind::kClosed);
}

TEST_F(Failover, APathThatNeverWorksIsReplacedBeforeTheFirstTransfer) {
  EngineConfig server = config_for({"server", "auto"});
  EngineConfig client_config = config_for({"client", "verbs:soft0"});
  client_config.failover = true;
  client_config.verbs.packet_io = "udp,silent_after=1";
  start(server, client_config);
  EXPECT_EQ(peer.transport(), "tcp");
  EXPECT_NE(peer.explain().find("verbs:soft0: "), std::string::npos) << peer.explain();
  auto [memory, remote] = target("region", 4096);
  EXPECT_TRUE(peer.write(buffer(*client, 4096), remote).wait(kPatience).ok());
}

/// Shuts this process's socket at a local TCP port down, as a middlebox may: both ends see the connection end.
bool shut_down_socket_at(std::uint16_t port) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in local{};
    socklen_t length = sizeof local;
    sockaddr_in remote{};
    socklen_t remote_length = sizeof remote;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0 || local.sin_family != AF_INET) continue;
    if (ntohs(local.sin_port) != port) continue;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &remote_length) != 0) continue;
    return ::shutdown(fd, SHUT_RDWR) == 0;
  }
  return false;
}

TEST_F(Failover, AConnectionThatEndsIsMadeAgainWhereThereIsNoOtherWay) {
  constexpr std::uint64_t kWrites = 400, kBytes = 64 * 1024;
  EngineConfig config = config_for({"tcp", "tcp"});
  config.failover = true;
  start(config, config);
  auto [memory, remote] = target("region", kBytes);
  Memory source = buffer(*client, kBytes, 3);
  std::uint64_t broken = 0, next = 0;
  std::vector<Transfer> transfers;
  for (std::uint64_t i = 0; i < kWrites; ++i) {
    if (i % 100 == 50) {
      // "tcp (tcp 127.0.0.1:PORT -> ...": of the path in use now.
      ASSERT_TRUE(peer.wait_ready(kPatience).ok());
      const std::string text = peer.explain();
      const std::size_t at = text.find("tcp 127.0.0.1:");
      ASSERT_NE(at, std::string::npos) << text;
      broken += shut_down_socket_at(static_cast<std::uint16_t>(std::stoul(text.substr(at + 14)))) ? 1 : 0;
    }
    transfers.push_back(peer.write(source, remote, {.notify = i}));
    if (i % 100 == 99) {
      EXPECT_TRUE(wait_all(transfers, kPatience).ok());
    }
  }
  EXPECT_EQ(broken, 4u);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.code(), Code::kOk) << transfer.status().to_string();
  for (; next < kWrites; ++next) ASSERT_EQ(next_of(server_peer, Kind::kNotification).value, next);
  std::uint64_t changes = 0;
  for (Event event; (event = peer.next_event()).kind != Kind::kNone;) {
    ASSERT_NE(event.kind, Kind::kClosed) << event.status.to_string();
    if (event.kind != Kind::kPathChanged) continue;
    ++changes;
    EXPECT_EQ(event.text.find("tcp -> tcp: "), 0u) << event.text;
  }
  EXPECT_EQ(changes, broken);
  EXPECT_EQ(peer.stats().recoveries, broken);
  EXPECT_EQ(peer.stats().failovers, 0u) << "it is the same transport";
  EXPECT_EQ(peer.state(), PeerState::kReady);
}

TEST(Session, RefusesWhatIsNotAPeer) {
  EngineConfig config = config_for({"server", "tcp"});
  config.listen = "127.0.0.1:0";
  Result<Engine> server = Engine::create(config);
  ASSERT_TRUE(server);
  EngineConfig taken = config;
  taken.listen = server->listen_address();
  Result<Engine> second = Engine::create(taken);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists) << second.error().to_string();
  Result<Engine> client = Engine::create(config_for({"client", "tcp"}));
  ASSERT_TRUE(client);
  Result<Peer> nobody = client->connect("127.0.0.1:1");
  ASSERT_TRUE(nobody);
  EXPECT_EQ(nobody->wait_ready(kPatience).code(), Code::kUnavailable);
  EXPECT_FALSE(client->connect("127.0.0.1"));
  EXPECT_FALSE(client->connect("127.0.0.1:99999"));
  Result<Peer> unknown = client->connect("no-such-host.invalid:7471");
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->wait_ready(kPatience).code(), Code::kNotFound);
}

TEST(Session, BadSettingsAreRefusedAlsoWhereTheyAreNotUsedYet) {
  for (const char* packet_io : {"tcp", "udp,drop=2", "udp,bogus=1"}) {
    EngineConfig config = config_for({"client", "auto"});
    config.verbs.packet_io = packet_io;
    const Result<Engine> engine = Engine::create(config);
    ASSERT_FALSE(engine) << packet_io;
    EXPECT_EQ(engine.error().code(), Code::kInvalidArgument) << engine.error().to_string();
  }
}

TEST(Session, AMessageLongerThanThePeerTakesFailsAlone) {
  EngineConfig server = config_for({"server", "tcp"});
  server.max_message_bytes = 64 << 10;
  EnginePair pair;
  pair.start(server, config_for({"client", "tcp"}));
  const std::vector<std::byte> large((64 << 10) + 1), fits(64 << 10);
  Transfer refused = pair.peer.send(large, 1), sent = pair.peer.send(fits, 2);
  expect_failure(refused, Code::kInvalidArgument, "a message of 65537 bytes");
  EXPECT_TRUE(sent.wait(kPatience).ok()) << sent.status().to_string();
  EXPECT_EQ(next_of(pair.server_peer, Event::Kind::kMessage).value, 2u);
}

TEST(Session, ASlowPathIsNotADeadOne) {
  // Each burst of packets takes 40 ms: an operation of 1 MiB lasts longer than path_timeout.
  EngineConfig server = config_for({"server", "auto"});
  EngineConfig client = config_for({"client", "verbs:soft0", "full", true, "udp,delay_us=40000"});
  client.failover = true;
  client.path_timeout = std::chrono::milliseconds(100);
  EnginePair pair;
  pair.start(server, client);
  auto [memory, remote] = pair.target("region", std::size_t{1} << 20);
  Memory source = pair.buffer(*pair.client, std::size_t{1} << 20, 6);
  EXPECT_TRUE(pair.peer.write(source, remote).wait(kPatience).ok());
  EXPECT_EQ(pair.peer.transport(), "verbs:soft0") << pair.peer.explain();
}

}  // namespace
}  // namespace fairlead
