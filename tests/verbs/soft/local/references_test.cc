// Packets that refer to payload, between ports of devices of one host: what is copied, what is taken back, and peers
// that name memory that is not there, end in the middle, or must not be read.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/bytes.h"
#include "tests/own_address.h"
#include "verbs/soft/port/local/local_port.h"
#include "verbs/soft/port/udp/udp_ports.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/opcode.h"

namespace fairlead::soft::local::test {
namespace {

constexpr std::uint32_t kNumber = 5;
constexpr std::size_t kLong = 64 << 10;

Gid new_address() {
  static unsigned host = 100;
  return Gid::from_ipv4(fairlead::test::own_address(++host));
}

struct Port {
  explicit Port(const LocalOptions& options = {}, const Gid& at = new_address()) : address(at) {
    auto socket = bind_roce_port(address, PortUse::kReceive);
    EXPECT_TRUE(socket) << socket.error().message();
    port = LocalPort::around(std::make_unique<UdpPort>(interface_of(address), std::move(*socket)), Party{address},
                             options);
    port->count_in(counters);
  }
  void to(const Gid& other) { route = port->make_route(other, 0, 0, 0); }
  /// How much a packet may refer to now.
  [[nodiscard]] std::size_t reach(std::size_t message = kLong) {
    return route.references == nullptr ? 0 : route.references->reach(route, kNumber, message);
  }
  void send(std::span<const std::byte> payload, bool refers) {
    std::byte* const head = batch.begin(route, Bth::kBytes, payload.size());
    batch.lend();
    Bth{.opcode = static_cast<std::uint8_t>(Opcode::kSendOnly), .dest_qpn = kNumber, .psn = {}}.encode(head);
    if (refers) {
      batch.refer(payload.data(), payload.size());
    } else {
      EXPECT_TRUE(batch.payload(payload.data(), payload.size()));
    }
    batch.finish(0);
    port->tx_burst(batch);
  }
  /// What has come, which stays until the next call.
  std::span<const RxPacket> look() {
    ahead += kMillisecond;
    return std::span(packets).first(port->rx_burst(packets, steady_clock().now() + ahead));
  }
  const RxPacket* await() {
    for (int i = 0; i < 20'000; ++i) {
      if (const auto came = look(); !came.empty()) return came.data();
      ::usleep(1000);
    }
    ADD_FAILURE() << "nothing came in 20 s";
    return nullptr;
  }

  Gid address;
  Counters counters;
  std::unique_ptr<PacketPort> port;
  Route route;
  TxBatch batch;
  std::array<RxPacket, 16> packets;
  Nanos ahead = kSecond;
};

struct Pair {
  explicit Pair(const LocalOptions& ours = {}, const LocalOptions& theirs = {}) : a(ours), b(theirs) {
    a.to(b.address);
    b.to(a.address);
    a.send(small, false);
    EXPECT_NE(b.await(), nullptr);
    for (int i = 0; i < 3; ++i) {  // each looks at the other's memory
      a.look();
      b.look();
    }
  }
  const std::vector<std::byte> small = pattern(64, 1);
  const std::vector<std::byte> payload = pattern(kLong, 1);
  Port a, b;
};

TEST(LocalReferences, PayloadIsCopiedOnceToWhereItIsToGo) {
  Pair pair;
  ASSERT_EQ(pair.a.reach(), std::size_t{Reference::kMostBytes});
  EXPECT_EQ(pair.a.reach(kLeastReferred - 1), 0U);
  ASSERT_EQ(pair.b.reach(), std::size_t{Reference::kMostBytes}) << "both ways";
  pair.a.send(pair.payload, true);
  const RxPacket* const packet = pair.b.await();
  ASSERT_NE(packet, nullptr);
  ASSERT_NE(packet->payload_source, nullptr);
  EXPECT_EQ(packet->payload_bytes, kLong);
  EXPECT_EQ(packet->bytes.size(), Bth::kBytes + kIcrcBytes);
  EXPECT_TRUE(packet->unchecked);
  std::vector<std::byte> got(kLong);
  const std::array<iovec, 3> places{{{got.data(), 1}, {&got[1], 5000}, {&got[5001], kLong - 5001}}};
  EXPECT_TRUE(packet->payload_source->fetch(places));
  EXPECT_EQ(got, pair.payload);
  EXPECT_EQ(pair.a.counters.sent_by_reference.get(), 1U);
  EXPECT_EQ(pair.a.counters.sent_reference_bytes.get(), kLong);
  EXPECT_EQ(pair.b.counters.rcvd_by_reference.get(), 1U);
  EXPECT_EQ(pair.b.counters.rcvd_reference_bytes.get(), kLong);
  pair.a.port->end_loans();
  EXPECT_EQ(pair.a.counters.references_withdrawn.get(), 0U) << "it was had";
}

TEST(LocalReferences, OneThatWasTakenBackDoesNotArrive) {
  for (const int how : {0, 1, 2}) {
    Pair pair;
    pair.a.send(pair.payload, true);
    const RxPacket* const packet = pair.b.await();
    ASSERT_NE(packet, nullptr);
    pair.a.port->unmap(pair.payload.data() + kLong, 100);
    EXPECT_EQ(pair.a.counters.references_withdrawn.get(), 0U) << "of other memory";
    if (how == 0) pair.a.port->unmap(pair.payload.data() + kLong - 1, 100);
    if (how == 1) pair.a.port->end_loans();
    if (how == 2) pair.a.route.references->withdraw(pair.a.route);
    EXPECT_EQ(pair.a.counters.references_withdrawn.get(), 1U) << how;
    std::vector<std::byte> got(kLong);
    const iovec place{got.data(), kLong};
    EXPECT_FALSE(packet->payload_source->fetch({&place, 1})) << how;
    EXPECT_EQ(got.back(), std::byte{}) << "the last byte says that all is there";
    EXPECT_EQ(pair.b.counters.references_failed.get(), 0U);
    EXPECT_NE(pair.a.reach(), 0U);
  }
}

TEST(LocalReferences, MemoryThatIsNotThereIsNoPacketAndNoneRefersForAWhile) {
  Pair pair;
  void* const gone = ::mmap(nullptr, kLong, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  pair.a.send({static_cast<const std::byte*>(gone), kLong}, true);
  pair.a.send(pair.payload, true);
  const auto came = pair.b.look();
  ASSERT_EQ(came.size(), 2U);
  std::vector<std::byte> got(kLong);
  const iovec place{got.data(), kLong};
  EXPECT_FALSE(came[0].payload_source->fetch({&place, 1}));
  EXPECT_EQ(pair.b.counters.references_failed.get(), 1U);
  EXPECT_EQ(pair.a.reach(), 0U);
  pair.a.send(pair.payload, true);  // as it may be just about to
  EXPECT_GT(pair.a.port->refused(), 0U);
  pair.a.send(pair.small, false);
  const RxPacket* const small = pair.b.await();
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->payload_source, nullptr);
  for (int i = 0; i < 900; ++i) pair.b.look();
  EXPECT_EQ(pair.a.reach(), 0U);
  for (int i = 0; i < 200; ++i) pair.b.look();
  EXPECT_NE(pair.a.reach(), 0U) << "then it is tried again";
  ::munmap(gone, kLong);
}

TEST(LocalReferences, AreNotForWhoLooksAtPacketsNorWhereTheyAreOff) {
  for (const LocalOptions& other : {LocalOptions{.checks = true}, LocalOptions{.least_referred = 0}}) {
    Pair theirs({}, other), ours(other, {});
    EXPECT_EQ(theirs.a.reach(), 0U);
    EXPECT_EQ(theirs.b.reach(), 0U);
    EXPECT_EQ(ours.a.reach(), 0U);
    EXPECT_EQ(ours.b.reach(), 0U);
    EXPECT_EQ(ours.a.counters.references_denied.get() + ours.b.counters.references_denied.get(), 0U);
  }
}

TEST(LocalReferences, WhatAFullRingDoesNotTakeWaitsAndCanBeTakenBack) {
  Pair pair;
  for (std::uint32_t i = 0; i < kSlots + 10; ++i) pair.a.send(pair.payload, true);
  EXPECT_EQ(pair.a.port->refused(), 0U);
  pair.a.port->unmap(pair.payload.data(), 1);
  EXPECT_EQ(pair.a.counters.references_withdrawn.get(), kSlots + 10);
  EXPECT_EQ(pair.a.port->next_event(), 0U) << "nothing waits any more";
  std::size_t packets = 0;
  for (auto came = pair.b.look(); !came.empty(); came = pair.b.look()) packets += came.size();
  EXPECT_EQ(packets, kSlots);
}

TEST(LocalReferences, UrgentOnesAreHadAndTakenBackToo) {
  Pair pair;
  pair.a.route.urgent = true;
  for (const bool taken_back : {false, true}) {
    pair.a.send(pair.payload, true);
    std::array<RxPacket, 4> packets;
    ASSERT_EQ(pair.b.route.apart->rx_urgent(packets, steady_clock().now() + pair.b.ahead), 1U);
    if (taken_back) pair.a.port->end_loans();
    std::vector<std::byte> got(kLong);
    const iovec place{got.data(), kLong};
    ASSERT_NE(packets[0].payload_source, nullptr);
    EXPECT_EQ(packets[0].payload_source->fetch({&place, 1}), !taken_back);
    EXPECT_EQ(got == pair.payload, !taken_back);
  }
  for (std::uint32_t i = 0; i < kSlots + 10; ++i) pair.a.send(pair.payload, true);
  pair.a.port->end_loans();
  EXPECT_EQ(pair.a.counters.references_withdrawn.get(), 1U + kSlots + 10);
}

TEST(LocalReferences, ABurstHasSoMuchToFetchAndNoMore) {
  Pair pair;
  for (int i = 0; i < 10; ++i) pair.a.send(pair.payload, true);
  EXPECT_EQ(pair.b.look().size(), (256U << 10) / kLong);
}

TEST(LocalReferences, APeerThatEndsInTheMiddleBringsNothing) {
  const Gid address = new_address();
  Port b;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // or a test that fails leaves it
    Port a({}, address);
    a.to(b.address);
    const auto payload = pattern(kLong, 1);
    a.send(std::span(payload).first(64), false);
    while (a.reach() == 0) {
      a.look();
      ::usleep(100);
    }
    a.send(payload, true);
    if (::write(pipe[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  ::close(pipe[1]);
  const RxPacket* packet = b.await();
  ASSERT_NE(packet, nullptr);
  packet = b.await();
  ASSERT_NE(packet, nullptr);
  ASSERT_NE(packet->payload_source, nullptr);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  std::vector<std::byte> got(kLong);
  const iovec place{got.data(), kLong};
  EXPECT_FALSE(packet->payload_source->fetch({&place, 1}));
  EXPECT_EQ(got.back(), std::byte{});
  EXPECT_EQ(b.counters.references_failed.get(), 1U);
  ::close(pipe[0]);
}

TEST(LocalPeerMemory, IsReadOnlyOfWhoShowedItsWord) {
  const std::uint64_t word = 0x1234567890abcdef;
  const Witness right{reinterpret_cast<std::uintptr_t>(&word), word}, wrong{right.address, word ^ 1};
  PeerMemory memory;
  EXPECT_FALSE(memory.meet(0, right));
  EXPECT_FALSE(memory.meet(::getpid(), wrong));
  EXPECT_FALSE(memory.meet(::getpid(), {8, word}));
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  EXPECT_FALSE(memory.meet(ended, right));
  EXPECT_TRUE(memory.meet(::getpid(), right));
  const auto payload = pattern(100, 1);
  std::array<std::byte, 100> got{};
  const iovec place{got.data(), got.size()};
  std::byte last{};
  const Reference reference{reinterpret_cast<std::uintptr_t>(payload.data()), 100, 0};
  EXPECT_TRUE(memory.copy(reference, {&place, 1}, last));
  EXPECT_EQ(last, payload.back());
  EXPECT_EQ(got.back(), std::byte{});
  EXPECT_FALSE(memory.copy({reference.address, 99, 0}, {&place, 1}, last)) << "less than there is room for";
}

}  // namespace
}  // namespace fairlead::soft::local::test
