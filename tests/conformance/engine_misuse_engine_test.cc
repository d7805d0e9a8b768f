// What a program gets wrong with engines: their addresses, settings, files and ends.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "tests/conformance/engine_misuse.h"

namespace fairlead {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST_F(EngineMisuse, AddressesToConnectTo) {
  for (const std::string_view bad : {"", ":", "host", "host:", "host:99999", "host:-1", "host:1x", "[::1", "[]:1",
                                     "::1:80", "ho st:1", "host:0", ":7471", "http://host:1"}) {
    expect_error(client->connect(bad), Code::kInvalidArgument, "'" + std::string(bad) + "'");
  }
  const auto ended = [&](const std::string& address) {
    Result<Peer> to = client->connect(address);
    EXPECT_TRUE(to) << to.status().to_string();
    return to ? to->wait_ready(kPatience) : to.status();
  };
  expect_error(ended("127.0.0.1:1"), Code::kUnavailable, "127.0.0.1:1");
  expect_error(ended("999.1.1.1:1"), Code::kInvalidArgument, "999.1.1.1");
  EXPECT_FALSE(ended(std::string(100'000, 'h') + ":1").ok());
}

TEST_F(EngineMisuse, ConnectingToItself) {
  Result<Peer> self = server->connect(server->listen_address());
  ASSERT_TRUE(self) << self.error().to_string();
  ASSERT_TRUE(self->wait_ready(kPatience).ok());
  const Result<RemoteMemory> own = self->lookup("region", kPatience);
  ASSERT_TRUE(own) << own.error().to_string();
  EXPECT_TRUE(self->write(buffer(*server, kBytes, 3), *own).wait(kPatience).ok());
  EXPECT_EQ(inbox.data()[0], std::byte{3});
}

TEST_F(EngineMisuse, AddressesToListenOn) {
  const auto listen = [](const std::string& address) {
    EngineConfig config = config_for({"tcp", "tcp"});
    config.listen = address;
    return Engine::create(config).status();
  };
  expect_error(listen(server->listen_address()), Code::kAlreadyExists, "choose another port");
  for (const char* bad : {":", "host", "127.0.0.1", "127.0.0.1:99999", "[::1", "::1:1"}) {
    expect_error(listen(bad), Code::kInvalidArgument, bad);
  }
  expect_error(listen("no.such.host:0"), Code::kInvalidArgument, "'no.such.host'");
  expect_error(listen("192.0.2.1:0"), Code::kNotFound, "192.0.2.1, which is no address of this host");
}

TEST_F(EngineMisuse, AcceptingWhereNobodyCanConnect) {
  EXPECT_EQ(client->listen_address(), "");
  EXPECT_FALSE(client->accept());
  expect_error(client->accept(nanoseconds::max()), Code::kInvalidArgument, "EngineConfig::listen");
}

TEST(EngineMisuseAlone, AnEndForWhichThereIsAllTheTimeWaitsForWhatIsUnderWay) {
  constexpr std::size_t kEach = std::size_t{1} << 20;
  EnginePair pair;
  pair.start(config_for({"tcp", "tcp"}), config_for({"tcp", "tcp"}));
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  auto [memory, to] = pair.target("slow", kEach);
  const Memory from = pair.buffer(*pair.client, kEach, 5);
  std::vector<Transfer> transfers;
  for (int i = 0; i < 64; ++i) transfers.push_back(pair.peer.write(from, to));
  pair.peer.close(nanoseconds::max());
  for (Transfer& each : transfers) EXPECT_TRUE(each.wait(kPatience).ok()) << each.status().to_string();
}

TEST(EngineMisuseAlone, OneRequestAtATimeIsEnoughForOneSidedWrites) {
  EnginePair pair;
  EngineConfig config = config_for({"tcp", "tcp"});
  config.tcp.send_depth = 1;
  pair.start(config, config);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  EXPECT_EQ(pair.peer.explain().find("staged"), std::string::npos) << pair.peer.explain();
  auto [memory, to] = pair.target("slot", 4096);
  const Memory from = pair.buffer(*pair.client, 4096, 9);
  ASSERT_TRUE(pair.peer.write(from, to).wait(kPatience).ok());
  EXPECT_EQ(pair.peer.explain().find("staged"), std::string::npos) << pair.peer.explain();
}

TEST(EngineMisuseAlone, SettingsOutOfRange) {
  using std::chrono::microseconds;
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const struct {
    std::string_view field;
    std::function<void(EngineConfig&)> change;
  } rows[] = {
      {"name", [](EngineConfig& c) { c.name = std::string(256, 'n'); }},
      {"transport", [](EngineConfig& c) { c.transport = ""; }},
      {"transport", [](EngineConfig& c) { c.transport = "TCP"; }},
      {"tcp.host", [](EngineConfig& c) { c.tcp.host = "gpu7"; }},
      {"transport", [](EngineConfig& c) { c.transport = "verbs:"; }},
      {"progress", [](EngineConfig& c) { c.progress = static_cast<Progress>(3); }},
      {"spin", [](EngineConfig& c) { c.spin = microseconds(-1); }},
      {"spin", [](EngineConfig& c) { c.spin = microseconds::max(); }},
      {"connect_timeout", [](EngineConfig& c) { c.connect_timeout = milliseconds(0); }},
      {"connect_timeout", [](EngineConfig& c) { c.connect_timeout = milliseconds::max(); }},
      {"path_timeout", [](EngineConfig& c) { c.path_timeout = milliseconds(-5); }},
      {"path_timeout", [](EngineConfig& c) { c.path_timeout = milliseconds::max(); }},
      {"peer_timeout", [](EngineConfig& c) { c.peer_timeout = milliseconds(0); }},
      {"peer_timeout", [](EngineConfig& c) { c.peer_timeout = milliseconds::max(); }},
      {"pool_arena_bytes", [](EngineConfig& c) { c.pool_arena_bytes = 1; }},
      {"pool_arena_bytes", [](EngineConfig& c) { c.pool_arena_bytes = most; }},
      {"max_message_bytes", [](EngineConfig& c) { c.max_message_bytes = 0; }},
      {"max_message_bytes", [](EngineConfig& c) { c.max_message_bytes = most; }},
      {"max_pending_events", [](EngineConfig& c) { c.max_pending_events = 0; }},
      {"max_pending_events", [](EngineConfig& c) { c.max_pending_events = most; }},
      {"max_pending_bytes", [](EngineConfig& c) { c.max_pending_bytes = 0; }},
      {"max_pending_bytes", [](EngineConfig& c) { c.max_pending_bytes = most; }},
      {"max_posted", [](EngineConfig& c) { c.max_posted = 0; }},
      {"max_posted", [](EngineConfig& c) { c.max_posted = most; }},
      {"max_posted_bytes", [](EngineConfig& c) { c.max_posted_bytes = 0; }},
      {"max_posted_bytes", [](EngineConfig& c) { c.max_posted_bytes = most; }},
      {"chunk_bytes", [](EngineConfig& c) { c.chunk_bytes = 100; }},
      {"chunk_bytes", [](EngineConfig& c) { c.chunk_bytes = most; }},
      {"verbs.packet_io", [](EngineConfig& c) { c.verbs.packet_io = ""; }},
      {"packet", [](EngineConfig& c) { c.verbs.packet_io = "pigeon"; }},
      {"drop", [](EngineConfig& c) { c.verbs.packet_io = "udp,drop=2"; }},
      {"verbs.profile", [](EngineConfig& c) { c.verbs.profile = "best"; }},
      {"verbs.soft_address", [](EngineConfig& c) { c.verbs.soft_address = "here"; }},
      {"verbs.gid_index", [](EngineConfig& c) { c.verbs.gid_index = -2; }},
      {"verbs.gid_index", [](EngineConfig& c) { c.verbs.gid_index = 256; }},
      {"verbs.port", [](EngineConfig& c) { c.verbs.port = 0; }},
      {"verbs.port", [](EngineConfig& c) { c.verbs.port = 256; }},
      {"verbs.hop_limit", [](EngineConfig& c) { c.verbs.hop_limit = 0; }},
      {"verbs.mtu", [](EngineConfig& c) { c.verbs.mtu = 1500; }},
      {"verbs.ack_timeout", [](EngineConfig& c) { c.verbs.ack_timeout = 32; }},
      {"verbs.retry_count", [](EngineConfig& c) { c.verbs.retry_count = 8; }},
      {"verbs.rnr_retry", [](EngineConfig& c) { c.verbs.rnr_retry = 8; }},
      {"verbs.min_rnr_timer", [](EngineConfig& c) { c.verbs.min_rnr_timer = 32; }},
      {"verbs.send_depth", [](EngineConfig& c) { c.verbs.send_depth = 1; }},
      {"verbs.send_depth", [](EngineConfig& c) { c.verbs.send_depth = 32769; }},
      {"verbs.receive_depth", [](EngineConfig& c) { c.verbs.receive_depth = 0; }},
      {"verbs.receive_depth", [](EngineConfig& c) { c.verbs.receive_depth = 1u << 20; }},
      {"verbs.message_bytes", [](EngineConfig& c) { c.verbs.message_bytes = 255; }},
      {"verbs.message_bytes", [](EngineConfig& c) { c.verbs.message_bytes = UINT32_MAX; }},
      // `auto` goes without tcp where there is another way.
      {"here", [](EngineConfig& c) { c.transport = "tcp", c.tcp.host = "here"; }},
      {"192.0.2.1", [](EngineConfig& c) { c.transport = "tcp", c.tcp.host = "192.0.2.1"; }},
      {"tcp.send_depth", [](EngineConfig& c) { c.tcp.send_depth = 0; }},
      {"tcp.send_depth", [](EngineConfig& c) { c.tcp.send_depth = 65537; }},
      {"tcp.socket_buffer", [](EngineConfig& c) { c.tcp.socket_buffer = 1; }},
      {"tcp.socket_buffer", [](EngineConfig& c) { c.tcp.socket_buffer = UINT32_MAX; }},
      {"tcp.congestion_control", [](EngineConfig& c) { c.tcp.congestion_control = "longer than any name"; }},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.field);
    EngineConfig config;
    row.change(config);
    const Status refused = Engine::create(config).status();
    EXPECT_TRUE(refused.code() == Code::kInvalidArgument || refused.code() == Code::kNotFound) << refused.to_string();
    EXPECT_NE(refused.message().find(row.field), std::string::npos) << refused.to_string();
  }
  EngineConfig config;
  config.transport = "verbs:none";
  expect_error(Engine::create(config), Code::kNotFound, "'none'");
}

TEST_F(EngineMisuse, FilesThatCannotBeMapped) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("misuse." + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto file = [&](const char* name, std::string_view content) {
    std::ofstream(folder / name) << content;
    return (folder / name).string();
  };
  expect_error(client->map_file(""), Code::kNotFound, "''");
  expect_error(client->map_file(folder / "missing"), Code::kNotFound, "missing");
  expect_error(client->map_file(folder), Code::kInvalidArgument, "not a regular file");
  expect_error(client->map_file(folder, Access::kRemoteReadWrite), Code::kInvalidArgument, "not a regular file");
  expect_error(client->map_file("/dev/null"), Code::kInvalidArgument, "not a regular file");
  expect_error(client->map_file(file("empty", "")), Code::kInvalidArgument, "is empty");
  const std::string fixed = file("fixed", "content");
  expect_error(client->map_file(fixed, static_cast<Access>(0x40)), Code::kInvalidArgument, "access 64");
  ASSERT_EQ(::chmod(fixed.c_str(), 0400), 0);
  if (::geteuid() != 0) {
    expect_error(client->map_file(fixed, Access::kRemoteReadWrite), Code::kPermissionDenied, "owner and mode");
  }
  const Result<Memory> mapped = client->map_file(fixed);
  ASSERT_TRUE(mapped) << mapped.error().to_string();
  expect_error(client->publish("fixed", *mapped, Access::kRemoteReadWrite), Code::kPermissionDenied, "writing");
  std::filesystem::remove_all(folder);
}

// ---- the end

TEST(EngineMisuseAlone, CallsAfterTheEnd) {
  EnginePair pair;
  const EngineConfig config = config_for({"tcp", "tcp"});
  pair.start(config, config);
  const auto [memory, remote] = pair.target("region", kBytes);
  const Memory source = pair.buffer(*pair.client, kBytes);
  const Result<Prepared> list = pair.peer.prepare_write(std::vector<Descriptor>{{source, remote}});
  ASSERT_TRUE(list);

  // The session first, closed twice and with odd graces.
  Peer& peer = pair.peer;
  peer.close(nanoseconds::min());
  peer.close(nanoseconds::max());
  peer.close();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (peer.next_event(milliseconds(10)).kind != Event::Kind::kClosed) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_EQ(peer.state(), PeerState::kClosed);
  EXPECT_EQ(peer.next_event().kind, Event::Kind::kNone) << "that was the last";
  const auto all_fail = [&](const char* when) {
    SCOPED_TRACE(when);
    for (const Status& status :
         {peer.wait_ready(kPatience), peer.lookup("region", kPatience).status(), peer.list("", kPatience).status(),
          peer.write(source, remote).wait(kPatience), peer.read(source, remote).wait(kPatience),
          peer.post(*list).wait(kPatience), peer.send({}).wait(kPatience)}) {
      EXPECT_TRUE(status.code() == Code::kCancelled || status.code() == Code::kUnavailable) << status.to_string();
      EXPECT_TRUE(status.message().find("clos") != std::string::npos ||
                  status.message().find("shut down") != std::string::npos)
          << status.to_string();
    }
  };
  all_fail("closed");
  pair.client->shutdown();
  pair.client->shutdown();
  for (const Status& status : {pair.client->allocate(1).status(), pair.client->map_file("/etc/hostname").status(),
                               pair.client->publish("x", source, Access::kRemoteRead), pair.client->unpublish("x"),
                               pair.client->connect("127.0.0.1:1").status(), pair.client->accept(kPatience).status()}) {
    expect_error(status, Code::kUnavailable, "shut down");
  }
  expect_error(pair.client->next_event(kPatience).second.status, Code::kUnavailable, "shut down");
  EXPECT_FALSE(pair.client->next_completed());
  EXPECT_FALSE(pair.client->poll());
  EXPECT_TRUE(pair.client->peers().empty());
  all_fail("shut down");
  pair.client.reset();
  all_fail("destroyed");
  EXPECT_EQ(source.bytes().size(), kBytes);
  peer.close();
}

TEST(EngineMisuseAlone, AnEngineGoesBeforeWhatItMade) {
  std::vector<Transfer> transfers;
  Memory memory, theirs;
  RemoteMemory remote;
  Peer peer;
  std::optional<Prepared> list;
  {
    EnginePair pair;
    const EngineConfig config = config_for({"tcp", "tcp"});
    pair.start(config, config);
    std::tie(theirs, remote) = pair.target("region", 1 << 20);
    memory = pair.buffer(*pair.client, 1 << 20, 5);
    peer = pair.peer;
    list = *peer.prepare_read(std::vector<Descriptor>{{memory, remote}});
    for (int i = 0; i < 20; ++i) {
      transfers.push_back(peer.post(*list, {.notify = 1, .report = true}));
      transfers.push_back(peer.send(theirs.bytes().first(100), 0, {.report = true}));  // `memory` is being read into
    }
    pair.client.reset();  // with all of that under way, and events of the server's that nobody took
  }
  for (Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
  EXPECT_TRUE(wait_all(transfers, kPatience).ok() || wait_all(transfers).code() == Code::kCancelled);
  EXPECT_TRUE(memory.data()[0] == std::byte{5} || memory.data()[0] == std::byte{0});
  EXPECT_EQ(remote.name(), "region");
  EXPECT_EQ(list->size(), 1u);
  EXPECT_EQ(peer.state(), PeerState::kClosed);
  expect_failure(peer.post(*list), Code::kCancelled, "shut down");
}

// It is told not to, but what does not wait does no harm there, on whichever thread it is called.
TEST_F(EngineMisuse, AReleaseFunctionThatCallsTheEngine) {
  std::vector<std::byte> own(kBytes);
  std::atomic<int> called{0};
  const auto call = [&] {
    (void)client->stats();
    (void)client->poll();
    (void)client->allocate(64);
    (void)client->next_completed();
    ++called;
  };
  Result<Memory> direct = client->register_memory(own, Access::kNone, call);
  ASSERT_TRUE(direct);
  *direct = Memory();
  EXPECT_EQ(called, 1);
  Result<Memory> posted = client->register_memory(own, Access::kNone, call);
  ASSERT_TRUE(posted);
  Transfer last = peer.write(*posted, remote);
  *posted = Memory();
  EXPECT_TRUE(last.wait(kPatience).ok());
  last = Transfer();
  for (int i = 0; i < 1000 && called != 2; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(called, 2);
}

}  // namespace
}  // namespace fairlead
