// Memory of one host between two engines: what carries it ends, something else takes over, and it comes back.
#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

/// Hangs up every meeting of this process's, as if the ends of it had died. Returns how many sockets those were.
int cut_meetings() {
  int cut = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir("/proc/self/fd"), [](DIR* d) { return ::closedir(d); });
  while (const dirent* entry = ::readdir(all.get())) {
    const int fd = std::atoi(entry->d_name);
    int type = 0;
    socklen_t size = sizeof type;
    sockaddr_un peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) continue;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;  // it listens
    cut += ::shutdown(fd, SHUT_RDWR) == 0 ? 1 : 0;
  }
  return cut;
}

class ShmFailover : public testing::Test, public EnginePair {
 protected:
  void begin(const std::vector<std::string>& require = {}) {
    EngineConfig client = config_for({"client", "shm"});
    client.failover = true;
    client.require = require;
    EngineConfig server = config_for({"server", "auto"});
    server.failover = true;
    start(server, client);
    ASSERT_EQ(peer.transport(), "shm") << peer.explain();
    ASSERT_EQ(server_peer.transport(), "shm");
  }
  /// Writes slots with notifications across `cuts` cuts: each arrives once, in order, after its bytes.
  void write_across(int cuts) {
    constexpr std::uint64_t kSlots = 16, kSlotBytes = 100'000, kEach = 300;
    auto [memory, remote] = target("slots", kSlots * kSlotBytes);
    Memory source = buffer(*client, kSlots * kSlotBytes);
    std::uint64_t posted = 0, seen = 0;
    const auto take = [&, memory = memory] {
      const Event event = next_of(server_peer, Event::Kind::kNotification);
      ASSERT_EQ(event.value, seen);
      const std::byte* const slot = memory.data() + seen % kSlots * kSlotBytes;
      for (const std::size_t at : {std::size_t{0}, kSlotBytes / 2, kSlotBytes - 8}) {
        std::uint64_t word = 0;
        std::memcpy(&word, slot + at, sizeof word);
        ASSERT_EQ(word, seen) << "byte " << at;
      }
      ++seen;
    };
    std::vector<Transfer> transfers(kSlots);
    for (int cut = 0; cut <= cuts; ++cut) {
      for (std::uint64_t i = 0; i < kEach; ++i, ++posted) {
        if (posted >= seen + kSlots) take();
        if (HasFatalFailure()) return;
        const std::uint64_t slot = posted % kSlots;
        if (transfers[slot].valid()) {
          ASSERT_TRUE(transfers[slot].wait(kPatience).ok()) << transfers[slot].status().to_string();
        }
        std::byte* const bytes = source.data() + slot * kSlotBytes;
        for (const std::size_t at : {std::size_t{0}, kSlotBytes / 2, kSlotBytes - 8}) {
          std::memcpy(bytes + at, &posted, sizeof posted);
        }
        transfers[slot] = peer.write(source.slice(slot * kSlotBytes, kSlotBytes),
                                     remote.slice(slot * kSlotBytes, kSlotBytes), {.notify = posted});
        if (i == kEach / 2 && cut < cuts) {
          EXPECT_GT(cut_meetings(), 0);
        }
      }
    }
    while (seen < posted && !HasFatalFailure()) take();
    for (Transfer& each : transfers) EXPECT_TRUE(each.wait(kPatience).ok()) << each.status().to_string();
    EXPECT_EQ(peer.stats().transfers_failed, 0u);
  }
};

TEST_F(ShmFailover, TcpTakesOverAndItComesBack) {
  begin();
  write_across(1);
  EXPECT_EQ(peer.stats().failovers, 1u);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (peer.transport() != "shm" && std::chrono::steady_clock::now() < deadline) peer.next_event(kPatience / 60);
  EXPECT_EQ(peer.transport(), "shm") << peer.explain();
  EXPECT_EQ(peer.stats().failbacks, 1u);
}

TEST_F(ShmFailover, AloneItIsTriedAgain) {
  begin({"shm"});
  write_across(2);
  EXPECT_GE(peer.stats().recoveries, 1u);
  EXPECT_EQ(peer.stats().failovers, 0u);
  EXPECT_EQ(peer.transport(), "shm");
}

TEST_F(ShmFailover, WhatItCarriesIsCountedAndExplained) {
  begin();
  const std::string says = peer.explain();
  EXPECT_NE(says.find("one copy, by who receives"), std::string::npos) << says;
  auto [memory, remote] = target("counted", std::size_t{1} << 20);
  Memory source = buffer(*client, std::size_t{1} << 20);
  ASSERT_TRUE(peer.write(source, remote).wait(kPatience).ok());
  const auto of_shm = [](const Engine& engine) {
    TransportStats sum;
    for (const TransportStats& each : engine.stats().transports) {
      if (each.transport != "shm") continue;
      sum.bytes_sent += each.bytes_sent;
      sum.bytes_received += each.bytes_received;
      sum.requests += each.requests;
      sum.paths += each.paths;
    }
    return sum;
  };
  const TransportStats here = of_shm(*client), there = of_shm(*server);
  EXPECT_GE(here.bytes_sent, source.size());
  EXPECT_GE(there.bytes_received, source.size());
  EXPECT_GE(here.requests, 1u);
  EXPECT_GE(here.paths, 1u);
}

}  // namespace
}  // namespace fairlead
