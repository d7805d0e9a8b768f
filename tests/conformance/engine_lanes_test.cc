// Engines with several lanes: where sessions go, and that what is the engine's holds for all of them.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/unique_fd.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

using Kind = Event::Kind;

constexpr std::size_t kLanes = 2;

class Lanes : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  static EngineConfig with_lanes(EngineConfig config = config_for(GetParam())) {
    config.lanes = kLanes;
    return config;
  }
  /// Its device is opened when it is asked for, in all its lanes.
  static EngineConfig server_with_lanes() {
    EngineConfig config = with_lanes();
    config.transport = "auto";
    return config;
  }
  /// So many sessions, each end's in the same order.
  void begin(std::size_t sessions, EngineConfig server_config = server_with_lanes(),
             EngineConfig client_config = with_lanes()) {
    create(std::move(server_config), std::move(client_config));
    for (std::size_t i = 0; client && i < sessions && !HasFatalFailure(); ++i) {
      connect();
      peers.push_back(peer);
      server_peers.push_back(server_peer);
    }
  }
  static std::multiset<std::size_t> lanes_of(const std::vector<Peer>& all) {
    std::multiset<std::size_t> lanes;
    for (const Peer& each : all) lanes.insert(each.lane());
    return lanes;
  }
  static void wait_for(const std::function<bool()>& that, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!that() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(that()) << what;
  }

  std::vector<Peer> peers, server_peers;
};

TEST_P(Lanes, ShareOutTheSessions) {
  begin(4);
  if (HasFatalFailure()) return;
  const std::multiset<std::size_t> two_each{0, 0, 1, 1};
  EXPECT_EQ(lanes_of(peers), two_each);
  EXPECT_EQ(lanes_of(server_peers), two_each);
  EXPECT_EQ(server->peers().size(), 4U);
}

// A thread for each session writes slots with notifications; one at the other end takes what comes in any lane.
TEST_P(Lanes, CarryTheirSessionsBesideEachOther) {
  constexpr std::uint64_t kSessions = 4, kRounds = 300, kSlotBytes = 8192, kSlots = 16;
  // With packets that are lost, on a machine where each thread waits for its turn, an answer takes its time.
  EngineConfig server_config = server_with_lanes(), client_config = with_lanes();
  server_config.verbs.ack_timeout = client_config.verbs.ack_timeout = 17;
  begin(kSessions, server_config, client_config);
  if (HasFatalFailure()) return;
  const auto [memory, remote] = target("slots", kSessions * kSlots * kSlotBytes);
  std::vector<std::atomic<std::uint64_t>> seen(kSessions);
  std::vector<std::jthread> writers;
  for (std::uint64_t s = 0; s < kSessions; ++s) {
    writers.emplace_back([&, s, remote = remote] {
      const Result<RemoteMemory> slots = peers[s].lookup("slots", kPatience);
      ASSERT_TRUE(slots) << slots.error().to_string();
      Memory source = buffer(*client, kSlots * kSlotBytes);
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        while (round >= seen[s].load() + kSlots && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::yield();
        }
        const Memory slot = source.slice(round % kSlots * kSlotBytes, kSlotBytes);
        fill_pattern(slot.bytes(), s << 16 | round);
        const RemoteMemory there = slots->slice((s * kSlots + round % kSlots) * kSlotBytes, kSlotBytes);
        const Status written = peers[s].write(slot, there, {.notify = s << 16 | round}).wait(kPatience);
        ASSERT_TRUE(written.ok()) << written.to_string();
      }
    });
  }
  std::map<std::uint64_t, std::uint64_t> of_session;
  Memory expected = buffer(*server, kSlotBytes);
  for (std::uint64_t got = 0; got < kSessions * kRounds;) {
    const auto [from, event] = server->next_event(kPatience);
    ASSERT_TRUE(event.kind == Kind::kNotification || event.kind == Kind::kConnected) << event.status.to_string();
    if (event.kind != Kind::kNotification) continue;
    ++got;
    const std::uint64_t s = event.value >> 16, round = event.value & 0xFFFF;
    ASSERT_EQ(round, of_session[s]++) << "of session " << s;
    EXPECT_EQ(from, server_peers[s]);
    fill_pattern(expected.bytes(), event.value);
    ASSERT_EQ(std::memcmp(memory.data() + (s * kSlots + round % kSlots) * kSlotBytes, expected.data(), kSlotBytes), 0);
    seen[s].store(round + 1);
  }
  for (std::jthread& writer : writers) writer.join();
  // Each lane moved its half, and says so.
  std::map<std::size_t, std::uint64_t> moved;
  for (const TransportStats& each : client->stats().transports) moved[each.lane] += each.bytes_sent;
  ASSERT_EQ(moved.size(), kLanes);
  for (const auto& [lane, bytes] : moved) EXPECT_GE(bytes, 2 * kRounds * kSlotBytes) << "lane " << lane;
  EXPECT_EQ(client->stats().total.bytes_written, kSessions * kRounds * kSlotBytes);
}

TEST_P(Lanes, CarryOutAtomicsOfOneWordOneByOne) {
  begin(2);
  if (HasFatalFailure()) return;
  constexpr std::uint64_t kEach = 300;
  const auto [memory, remote] = target("word", 8, Access::kRemoteRead | Access::kRemoteAtomic);
  std::vector<std::jthread> adders;
  for (Peer& each : peers) {
    adders.emplace_back([&each] {
      const Result<RemoteMemory> word = each.lookup("word", kPatience);
      ASSERT_TRUE(word) << word.error().to_string();
      for (std::uint64_t i = 0; i < kEach; ++i) ASSERT_TRUE(each.fetch_add(*word, 1).wait(kPatience).ok());
    });
  }
  for (std::jthread& adder : adders) adder.join();
  std::uint64_t value = 0;
  std::memcpy(&value, memory.data(), sizeof value);
  EXPECT_EQ(value, 2 * kEach);
}

TEST_P(Lanes, AllHearThatARegionIsGone) {
  begin(2);
  if (HasFatalFailure()) return;
  const auto [memory, remote] = target("region", 4096);
  std::vector<RemoteMemory> known;
  for (Peer& each : peers) {
    const Result<RemoteMemory> region = each.lookup("region", kPatience);
    ASSERT_TRUE(region) << region.error().to_string();
    known.push_back(*region);
  }
  ASSERT_TRUE(server->unpublish("region").ok());
  for (const RemoteMemory& each : known) wait_for([&] { return each.withdrawn(); }, "nobody said so");
}

TEST_P(Lanes, ADeviceThatAPeerAsksForIsThereInAll) {
  begin(4);
  if (HasFatalFailure()) return;
  for (const Peer& each : server_peers) EXPECT_EQ(each.transport(), GetParam().transport) << "lane " << each.lane();
}

TEST_P(Lanes, LimitsHoldForAllTogether) {
  EngineConfig server_config = server_with_lanes();
  server_config.max_sessions = 3;
  begin(3, server_config);
  if (HasFatalFailure()) return;
  Result<Peer> fourth = client->connect(server->listen_address());
  ASSERT_TRUE(fourth);
  const Status refused = fourth->wait_ready(kPatience);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
  peers[0].close();
  wait_for([&] { return server->peers().size() == 2; }, "the first does not end");
  Result<Peer> fifth = client->connect(server->listen_address());
  ASSERT_TRUE(fifth);
  EXPECT_TRUE(fifth->wait_ready(kPatience).ok());
}

TEST_P(Lanes, OfTooManyStrangersTheOldestGoes) {
  EngineConfig server_config = server_with_lanes();
  server_config.max_handshakes = 3;
  begin(1, server_config);
  if (HasFatalFailure()) return;
  const Result<HostPort> at = parse_host_port(server->listen_address());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(at->port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  wait_for([&] { return server->stats().handshakes_refused == 2; }, "not two were dropped");
  const auto is_closed = [](const UniqueFd& fd) {
    char said[256];
    ssize_t got = 1;
    while (got > 0) got = ::recv(fd.get(), said, sizeof said, MSG_DONTWAIT);
    return got == 0;
  };
  wait_for([&] { return std::count_if(strangers.begin(), strangers.end(), is_closed) == 2; }, "not two are closed");
  EXPECT_EQ(peers[0].state(), PeerState::kReady);
}

INSTANTIATE_TEST_SUITE_P(Ways, Lanes, testing::ValuesIn(ways()), [](const auto& of) { return of.param.name; });

// ---- waiting for what any lane brings ------------------------------------------------------------------------------

class LanesWaits : public testing::TestWithParam<Progress>, public EnginePair {
 protected:
  static EngineConfig with_lanes(Progress progress = GetParam()) {
    EngineConfig config = config_for({"tcp", "tcp"});
    config.lanes = kLanes;
    config.progress = progress;
    return config;
  }
};

TEST_P(LanesWaits, AcceptAndTakeEventsOfEach) {
  create(with_lanes(), with_lanes(Progress::kAuto));
  if (HasFatalFailure()) return;
  constexpr std::uint64_t kEach = 50;
  std::jthread other([&] {
    std::vector<Peer> peers;
    for (std::size_t i = 0; i < kLanes; ++i) {
      Result<Peer> connected = client->connect(server->listen_address());
      ASSERT_TRUE(connected);
      ASSERT_TRUE(connected->wait_ready(kPatience).ok());
      peers.push_back(*connected);
    }
    for (std::uint64_t i = 0; i < kEach; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 4 == 0 ? 3000 : 0));  // who waits falls asleep
      for (Peer& each : peers) each.send({}, i);
    }
    for (Peer& each : peers) EXPECT_EQ(next_of(each, Kind::kMessage).value, kEach);
  });
  std::vector<Peer> accepted;
  for (std::size_t i = 0; i < kLanes; ++i) {
    Result<Peer> peer = server->accept(kPatience);
    ASSERT_TRUE(peer) << peer.error().to_string();
    accepted.push_back(*peer);
  }
  EXPECT_NE(accepted[0].lane(), accepted[1].lane());
  std::map<std::size_t, std::uint64_t> next;
  for (std::uint64_t got = 0; got < kLanes * kEach;) {
    const auto [from, event] = server->next_event(kPatience);
    ASSERT_NE(event.kind, Kind::kNone) << event.status.to_string();
    if (event.kind != Kind::kMessage) continue;
    EXPECT_EQ(event.value, next[from.lane()]++);
    ++got;
  }
  for (Peer& each : accepted) EXPECT_TRUE(each.send({}, kEach).wait(kPatience).ok());
  other.join();
  EXPECT_FALSE(server->accept(std::chrono::milliseconds(20)));
}

TEST_P(LanesWaits, TheDescriptorIsReadableWhileThereIsSomethingInAny) {
  create(with_lanes(), with_lanes(Progress::kAuto));
  if (HasFatalFailure()) return;
  const auto readable = [this] {
    pollfd ready{server->event_fd(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1;
  };
  const auto drive_until = [&](bool wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (readable() != wanted && std::chrono::steady_clock::now() < deadline) server->poll();
    EXPECT_EQ(readable(), wanted);
  };
  EXPECT_FALSE(readable());
  for (std::size_t i = 0; i < kLanes; ++i) {
    Result<Peer> connected = client->connect(server->listen_address());
    ASSERT_TRUE(connected);
    drive_until(true);
    Result<Peer> accepted = server->accept(kPatience);
    ASSERT_TRUE(accepted) << accepted.error().to_string();
    next_of(*accepted, Kind::kConnected);
    drive_until(false);
    connected->send({}, i);
    drive_until(true);
    EXPECT_EQ(server->next_event(std::chrono::seconds(0)).second.value, i);
    drive_until(false);
  }
}

TEST_P(LanesWaits, CompletedTransfersOfEachAreTaken) {
  create(with_lanes(Progress::kAuto), with_lanes());
  if (HasFatalFailure()) return;
  std::vector<Peer> both;
  for (std::size_t i = 0; i < kLanes; ++i) {
    connect();
    both.push_back(peer);
  }
  std::set<std::uint64_t> tags;
  for (std::uint64_t i = 0; i < 20; ++i) both[i % kLanes].send({}, i, {.report = true, .tag = i});
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (tags.size() < 20 && std::chrono::steady_clock::now() < deadline) {
    if (auto done = client->next_completed()) tags.insert(done->tag());
  }
  EXPECT_EQ(tags.size(), 20U);
}

TEST_P(LanesWaits, EndWithTheEngine) {
  create(with_lanes(), with_lanes());
  if (HasFatalFailure()) return;
  std::atomic<int> begun = 0;
  std::jthread accepts([&] {
    ++begun;
    EXPECT_EQ(server->accept(kPatience).error().code(), Code::kCancelled);
  });
  std::jthread takes([&] {
    ++begun;
    EXPECT_EQ(server->next_event(kPatience).second.status.code(), Code::kCancelled);
  });
  while (begun != 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  server->shutdown();
  accepts.join();
  takes.join();
}

std::string name_of(const testing::TestParamInfo<Progress>& of) {
  return of.param == Progress::kAuto ? "Auto" : of.param == Progress::kThread ? "Thread" : "Application";
}
INSTANTIATE_TEST_SUITE_P(Modes, LanesWaits, testing::Values(Progress::kAuto, Progress::kThread, Progress::kApplication),
                         name_of);

}  // namespace
}  // namespace fairlead
