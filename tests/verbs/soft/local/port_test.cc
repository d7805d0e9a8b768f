// Ports of devices of one host: who meets whom, what crosses memory and what does not, and peers that end, stop, lie or
// are another user's.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "base/system/unix_packets.h"
#include "tests/own_address.h"
#include "verbs/soft/port/local/local_port.h"
#include "verbs/soft/port/udp/udp_ports.h"
#include "verbs/soft/port/udp/udp_socket.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/opcode.h"

namespace fairlead::soft::local::test {
namespace {

constexpr uid_t kNobody = 65534;
constexpr std::uint32_t kNumber = 5;

Gid new_address() {
  static unsigned host = 0;
  return Gid::from_ipv4(fairlead::test::own_address(++host));
}

/// A device's port at an address that is its own.
struct Port {
  explicit Port(bool in_memory = true, bool checks = false, const Gid& at = new_address())
      : Port(in_memory, LocalOptions{.checks = checks}, at) {}
  Port(bool in_memory, const LocalOptions& options, const Gid& at = new_address()) : address(at) {
    auto socket = bind_roce_port(address, PortUse::kReceive);
    EXPECT_TRUE(socket) << socket.error().message();
    port = std::make_unique<UdpPort>(interface_of(address), std::move(*socket));
    if (in_memory) port = LocalPort::around(std::move(port), Party{address}, options);
    port->count_in(counters);
  }

  /// Packets of so many bytes of payload, which begin with a number that counts up.
  void send(const Port& to, unsigned count = 1, Opcode opcode = Opcode::kSendOnly, std::size_t bytes = 4000,
            bool urgent = false) {
    Route route = port->make_route(to.address, 0, 0, 0);
    route.urgent = urgent;
    std::vector<std::byte> payload(bytes);
    for (unsigned i = 0; i < count; ++i) {
      std::memcpy(payload.data(), &next, sizeof next);
      ++next;
      std::byte* const head = batch.begin(route, Bth::kBytes, bytes);
      Bth{.opcode = static_cast<std::uint8_t>(opcode), .dest_qpn = kNumber, .psn = {}}.encode(head);
      EXPECT_TRUE(batch.payload(payload.data(), bytes));
      batch.finish(0);
      port->tx_burst(batch);
    }
  }
  /// The numbers of what has come, all from `from`.
  std::vector<std::uint32_t> take(const Port& from) {
    std::vector<std::uint32_t> numbers;
    std::array<RxPacket, 16> packets;
    while (const std::size_t count = port->rx_burst(packets, time())) {
      for (const RxPacket& packet : std::span(packets).first(count)) {
        EXPECT_EQ(packet.source, from.address);
        EXPECT_EQ(packet.source_port, host_sender_port(from.address));
        const auto covered = packet.bytes.first(packet.bytes.size() - kIcrcBytes);
        const bool right = load_icrc(covered.data() + covered.size()) == icrc(headers_of(packet, *port), covered);
        EXPECT_TRUE(packet.unchecked || right);
        (packet.unchecked ? unchecked : checked)++;
        std::uint32_t number = 0;
        std::memcpy(&number, packet.bytes.data() + Bth::kBytes, sizeof number);
        numbers.push_back(number);
      }
    }
    return numbers;
  }
  void send_urgent(const Port& to, unsigned count = 1) { send(to, count, Opcode::kSendOnly, 100, true); }
  /// How many urgent ones have come.
  std::size_t take_urgent() {
    std::array<RxPacket, 16> packets;
    std::size_t all = 0;
    while (const std::size_t count = port->make_route(address, 0, 0, 0).apart->rx_urgent(packets, time())) all += count;
    return all;
  }
  /// The next number that comes.
  std::uint32_t await(const Port& from) {
    for (int i = 0; i < 20'000; ++i) {
      if (const auto numbers = take(from); !numbers.empty()) return numbers.front();
      ::usleep(1000);
    }
    ADD_FAILURE() << "nothing came in 20 s";
    return ~0U;
  }
  /// So often that it has looked at everything.
  void look(int rounds = 600) {
    std::array<RxPacket, 16> packets;
    for (int i = 0; i < rounds; ++i) {
      ahead += kMillisecond;
      port->rx_burst(packets, time());
    }
  }
  [[nodiscard]] Nanos time() const { return (stands ? 0 : steady_clock().now()) + ahead; }
  [[nodiscard]] std::uint64_t by_memory() const { return counters.sent_by_memory.get(); }

  Gid address;
  Counters counters;
  std::unique_ptr<PacketPort> port;
  TxBatch batch;
  Nanos ahead = kSecond;
  bool stands = false;  // its clock, but for looks
  std::uint32_t next = 0;
  unsigned checked = 0, unchecked = 0;
};

TEST(LocalPort, WhatTwoDevicesSendCrossesMemoryUncheckedOnceTheyHaveMet) {
  Port a, b;
  a.send(b);
  EXPECT_EQ(a.by_memory(), 1U);
  EXPECT_EQ(b.await(a), 0U);
  EXPECT_EQ(b.checked, 1U) << "what was sent before b had said that it needs no ICRC";
  for (std::uint32_t i = 0; i < 1000; ++i) {
    b.send(a, 1, i % 2 == 0 ? Opcode::kAcknowledge : Opcode::kReceipt, 4);
    a.send(b, 1, i % 2 == 0 ? Opcode::kWriteOnly : for_uc(Opcode::kSendOnly), 4 * (i + 1));
    ASSERT_THAT(a.take(b), testing::ElementsAre(i));
    ASSERT_THAT(b.take(a), testing::ElementsAre(i + 1));
  }
  EXPECT_EQ(a.unchecked, 1000U);
  EXPECT_EQ(b.unchecked, 1000U);
  EXPECT_EQ(b.by_memory(), 1000U) << "by the link that a had made";
  EXPECT_EQ(b.counters.rcvd_by_memory.get(), 1001U);
}

TEST(LocalPort, WhoLooksAtPacketsGetsIcrcs) {
  Port a, b(true, true);
  for (std::uint32_t i = 0; i < 100; ++i) {
    a.send(b);
    ASSERT_EQ(b.await(a), i);
  }
  EXPECT_EQ(a.by_memory(), 100U);
  EXPECT_EQ(b.unchecked, 0U);
}

TEST(LocalPort, OthersAreReachedBySocketsAsBefore) {
  Port a, alone(false), b;
  a.send(alone);
  EXPECT_EQ(alone.await(a), 0U);
  alone.send(a);
  EXPECT_EQ(a.await(alone), 0U);
  a.send(b, 1, Opcode::kUdSendOnly);
  EXPECT_EQ(b.await(a), 1U);
  EXPECT_EQ(a.by_memory(), 0U);
  a.send(b);
  EXPECT_EQ(b.await(a), 2U);
  a.send(b, 1, Opcode::kUdSendOnly);
  EXPECT_EQ(b.await(a), 3U) << "sockets are looked at beside memory";
  EXPECT_EQ(a.by_memory(), 1U);
}

// Another user has all of 127.0.0.0/8 to ask from, by QP1 or of a UD queue pair, and all of it is answered.
TEST(LocalPort, AnswersToStrangersTakeNobodysRoom) {
  constexpr std::uint32_t kStrangers = 300;  // more than there is room for
  Port a, b, stranger(false);
  for (std::uint32_t i = 0; i < kStrangers; ++i) {
    stranger.address = Gid::from_ipv4(0x7f020001 + i);
    a.send(stranger, 1, Opcode::kUdSendOnly);
    a.send(stranger, 1, Opcode::kReceipt, 4);
  }
  EXPECT_EQ(a.by_memory(), 0U);
  a.send(b);
  EXPECT_EQ(a.by_memory(), 1U);
  EXPECT_EQ(b.await(a), 2 * kStrangers);
}

TEST(LocalPort, WhoHasBeenMetGetsItsReceiptsByMemory) {
  Port a, b;
  b.send(a, 1, Opcode::kReceipt, 4);
  EXPECT_EQ(b.by_memory(), 0U);
  EXPECT_EQ(a.await(b), 0U);
  a.send(b, 1, for_uc(Opcode::kSendOnly));
  EXPECT_EQ(b.await(a), 0U);
  b.send(a, 1, Opcode::kReceipt, 4);
  EXPECT_EQ(b.by_memory(), 1U) << "though it has sent nothing else there";
  EXPECT_EQ(a.await(b), 1U);
}

TEST(LocalPort, ADeviceReachesItself) {
  Port a;
  a.send(a, 3);
  EXPECT_EQ(a.await(a), 0U);
  EXPECT_EQ(a.by_memory(), 3U);
}

TEST(LocalPort, WhatAFullRingDoesNotTakeWaitsUpToALimit) {
  Port a, b;
  a.send(b, 900);
  EXPECT_EQ(a.by_memory(), kSlots + 512U);
  EXPECT_EQ(a.port->refused(), 900 - kSlots - 512U);
  EXPECT_NE(a.port->next_event(), 0U) << "it wants to look again";
  std::vector<std::uint32_t> came;
  for (int i = 0; i < 20 && came.size() < kSlots + 512; ++i) {
    b.look(20);
    for (const std::uint32_t number : b.take(a)) came.push_back(number);
    a.look(1);
  }
  // look() takes and forgets: what it saw is counted by the port.
  EXPECT_EQ(b.counters.rcvd_by_memory.get(), kSlots + 512U);
  EXPECT_EQ(a.port->next_event(), 0U);
  a.send(b);
  EXPECT_EQ(b.await(a), 900U);
}

TEST(LocalPort, WhatIsUrgentPassesTheRest) {
  Port a, b;
  a.send(b);
  EXPECT_EQ(b.await(a), 0U);
  const Route to_b = a.port->make_route(b.address, 0, 0, 0);
  ASSERT_TRUE(to_b.apart != nullptr && to_b.apart->open());
  EXPECT_EQ(a.port->make_route(Gid::from_ipv4(0x0a010203), 0, 0, 0).apart, nullptr) << "of another host";
  a.send(b, 300);
  a.send_urgent(b, 3);
  EXPECT_EQ(b.take_urgent(), 3U);
  a.send_urgent(b);
  const auto came = b.take(a);
  ASSERT_EQ(came.size(), 1U + kSlots);
  EXPECT_EQ(came[0], 304U) << "first,";
  EXPECT_EQ(came[1], 1U) << "then the others, in order";
  EXPECT_EQ(came.back(), kSlots);
  a.send_urgent(b, kSlots + 10);
  EXPECT_EQ(b.take_urgent(), kSlots);
  b.look(1);
  a.look(1);
  EXPECT_EQ(b.take_urgent(), 10U) << "those that waited, too";
  EXPECT_EQ(b.counters.rcvd_by_memory.get(), 1U + 3U + 1U + kSlots + kSlots + 16U + 10U);
  EXPECT_EQ(a.port->refused(), 0U);
}

TEST(LocalPort, WhoSleepsIsWoken) {
  for (const bool urgent : {false, true}) {
    Port a, b;
    a.send(b);
    EXPECT_EQ(b.await(a), 0U);
    const auto send = [&] { a.send(b, 1, Opcode::kSendOnly, 4000, urgent); };
    for (std::uint32_t i = 1; i < 20; ++i) {
      ASSERT_TRUE(b.port->on_wait(true));
      pollfd waits{b.port->wait_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&waits, 1, 0), 0) << i;
      send();
      ASSERT_EQ(::poll(&waits, 1, 20'000), 1);
      b.port->on_wait(false);
      ASSERT_EQ(b.await(a), i);
      send();
      ASSERT_EQ(b.await(a), ++i);
    }
    send();
    EXPECT_FALSE(b.port->on_wait(true)) << "something is there";
  }
}

// Another process with a port of its own, which does `what` with it.
struct Other {
  Other(const Gid& address, const std::function<void(Port&)>& what) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    pid = ::fork();
    if (pid == 0) {
      Port port(true, false, address);
      if (::write(pipe[1], "x", 1) == 1) what(port);
      ::_exit(0);
    }
    char there = 0;
    ::close(pipe[1]);
    EXPECT_EQ(::read(pipe[0], &there, 1), 1);
    ::close(pipe[0]);
  }
  ~Other() { end(); }
  void end() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid = -1;
};

TEST(LocalPort, APeerThatIsKilledLeavesNothingAndItsFollowerIsMet) {
  const Gid address = new_address();
  Port a;
  std::uint64_t by_memory = 0;
  const char* const wanted = std::getenv("FAIRLEAD_SOFT_KILLS");
  const int kills = wanted != nullptr ? std::stoi(wanted) : 3;
  for (int round = 0; round < kills; ++round) {
    Other other(address, [&a](Port& own) {
      while (true) {
        own.send(a, 8);
        own.take(a);
      }
    });
    Port named(false);  // stands for the other's address
    named.address = address;
    EXPECT_NE(a.await(named), ~0U);
    a.send(named, 10);
    EXPECT_GT(a.by_memory(), by_memory) << round;
    other.end();
    a.look();
    by_memory = a.by_memory();
    a.send(named, 10);
    EXPECT_EQ(a.by_memory(), by_memory) << "there is nobody";
  }
}

TEST(LocalPort, APeerThatIsStoppedHoldsNobody) {
  const Gid address = new_address();
  Port a, named(false);
  named.address = address;
  Other other(address, [&a](Port& own) {
    own.send(a);
    while (true) own.take(a);
  });
  EXPECT_EQ(a.await(named), 0U);
  ::kill(other.pid, SIGSTOP);
  ASSERT_EQ(::waitpid(other.pid, nullptr, WUNTRACED), other.pid);
  a.send(named, 1000);
  EXPECT_GT(a.port->refused(), 0U);
  EXPECT_GT(a.port->next_event(), 0U);
  a.look();
  // What cannot go for a while is looked after ever less often.
  EXPECT_GE(a.port->next_event(), a.time() + 5 * kMillisecond);
}

TEST(LocalPort, WhoDoesNotAnswerIsReachedBySocketsFromThenOn) {
  Port a, plain(false);
  a.stands = true;
  const auto listener = listen_at(meeting_of(meeting_place().value(), Party{plain.address}));  // nobody accepts there
  ASSERT_TRUE(listener);
  a.send(plain, 3);
  EXPECT_EQ(a.by_memory(), 3U);
  a.look(110);
  for (std::uint32_t i = 3; i < 50; ++i) {
    a.send(plain);
    ASSERT_EQ(a.by_memory(), 3U);
    ASSERT_EQ(plain.await(a), i);
    a.look(1);
  }
  EXPECT_EQ(a.by_memory(), 3U);
  a.look(100);
  a.send(plain);
  EXPECT_EQ(a.by_memory(), 4U) << "it is tried again,";
  a.look(250);
  a.send(plain);
  EXPECT_EQ(a.by_memory(), 4U) << "ever less often";
}

// The port knows the time of its last burst. ib_send_lat over UC, whose first packet was lost so, never ended.
TEST(LocalPort, AfterAPauseAPeerHasItsTimeToAnswer) {
  Port a, plain(false);
  a.stands = true;
  const auto listener = listen_at(meeting_of(meeting_place().value(), Party{plain.address}));
  ASSERT_TRUE(listener);
  a.look(1);
  a.ahead += 10 * kSecond;
  a.send(plain);
  a.look(50);
  a.send(plain);
  EXPECT_EQ(a.by_memory(), 2U);
}

TEST(LocalPort, AWaiterIsWokenThoughOthersPoll) {
  Port a, b;
  std::array<RxPacket, 16> packets;
  const auto readable = [&] {
    pollfd waits{b.port->wait_fd(), POLLIN, 0};
    return ::poll(&waits, 1, 0) == 1;
  };
  EXPECT_TRUE(b.port->on_wait(true));
  a.send(b);
  for (Nanos i = 0; i < 1000; ++i) b.port->rx_burst(packets, steady_clock().now() + i * kMillisecond);
  EXPECT_TRUE(readable()) << "somebody who waited has to meet a";
  b.port->on_wait(false);
  EXPECT_EQ(b.await(a), 0U);
  b.send(a);
  EXPECT_TRUE(b.port->on_wait(true));
  a.send(b);
  EXPECT_EQ(b.await(a), 1U) << "by another than who waits";
  EXPECT_TRUE(readable());
}

TEST(LocalPort, AForkedChildHasNoLink) {
  Port a, b;
  a.send(b);
  EXPECT_EQ(b.await(a), 0U);
  const pid_t child = ::fork();
  if (child == 0) {
    a.send(b, 10);
    a.look(10);
    ::_exit(a.by_memory() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  a.send(b);
  EXPECT_EQ(b.await(a), 1U);
  EXPECT_EQ(a.by_memory(), 2U);
}

TEST(LocalPort, WhoSaysWhatIsNoGreetingIsLetGo) {
  Port a, b;
  const std::string name = meeting_of(meeting_place().value(), Party{b.address});
  const auto memory = make_shared_memory("test", 4096);
  const auto whole = make_shared_memory("test", sizeof(Segment));
  ASSERT_TRUE(memory && whole);
  GreetingBytes good = encode(Party{a.address}), other_version = good,
                stranger = encode(Party{Gid::from_ipv4(0x08080808)});
  other_version[4] = std::byte{9};
  struct Case {
    std::span<const std::byte> bytes;
    int descriptor;
  };
  const std::vector<Case> cases{{std::span(good).first(10), whole->get()},
                                {good, -1},
                                {good, memory->get()},
                                {other_version, whole->get()},
                                {stranger, whole->get()}};
  for (const Case& each : cases) {
    const PrivateFd socket = dial(name);
    ASSERT_TRUE(socket);
    ASSERT_TRUE(send_packet(socket.get(), each.bytes, each.descriptor));
    b.look();
    pollfd gone{socket.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&gone, 1, 0), 1);
    EXPECT_NE(gone.revents & POLLHUP, 0);
  }
  // Those who say nothing make room for others, and have their time.
  std::vector<PrivateFd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(dial(name));
  b.look();
  a.send(b);
  EXPECT_EQ(b.await(a), 0U);
  EXPECT_EQ(a.by_memory(), 1U);
  b.look(2000);
  EXPECT_TRUE(std::ranges::all_of(silent, [](const PrivateFd& each) {
    pollfd gone{each.get(), POLLIN, 0};
    return ::poll(&gone, 1, 0) == 1;
  }));
}

TEST(LocalPort, AnotherUserIsNotLetIn) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  Port b;
  const std::string theirs = (std::filesystem::temp_directory_path() / std::to_string(::getpid())).string() + ".memory";
  const auto listener = listen_at(theirs);  // where everybody may connect
  ASSERT_TRUE(listener);
  ::chmod(theirs.c_str(), 0777);
  const std::string name = meeting_of(meeting_place().value(), Party{b.address});
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
    if (dial(name)) ::_exit(2);    // the directory is closed to it
    if (dial(theirs)) ::_exit(3);  // nor does it take up with another user's
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    theirs.copy(address.sun_path, theirs.size());
    ::_exit(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  bool more = true;
  int came = 0;
  for (; more; ++came) EXPECT_FALSE(accept_from(listener->get(), more));
  EXPECT_EQ(came, 3) << "two that connected, and the end";
  std::filesystem::remove(theirs);
}

// As a system does that sweeps what a user has who is logged in no more.
TEST(LocalPort, ItsNameComesBackWhereItWasRemoved) {
  Port a, b;
  const std::string name = meeting_of(meeting_place().value(), Party{a.address});
  ASSERT_TRUE(std::filesystem::remove(name));
  a.look(1100);
  ASSERT_TRUE(std::filesystem::is_socket(name));
  b.send(a);
  EXPECT_EQ(b.by_memory(), 1U);
  EXPECT_EQ(a.await(b), 0U);
}

// Else it would be dialed, and what is sent to it lost, again and again.
TEST(LocalPort, WhoHasMetAsManyAsItMayIsReachedBySockets) {
  Port a;
  const std::string name = meeting_of(meeting_place().value(), Party{a.address});
  std::vector<std::unique_ptr<Port>> met;
  for (int i = 0; i < 64; ++i) {
    Port& one = *met.emplace_back(std::make_unique<Port>());
    one.send(a);
    ASSERT_EQ(a.await(one), 0U);
    ASSERT_EQ(one.by_memory(), 1U);
  }
  a.look(2);
  EXPECT_FALSE(std::filesystem::exists(name));
  Port last;
  last.send(a);
  EXPECT_EQ(a.await(last), 0U);
  EXPECT_EQ(last.by_memory(), 0U);
  met.pop_back();
  a.look(1200);
  EXPECT_TRUE(std::filesystem::is_socket(name)) << "there is room again";
}

TEST(LocalPort, ItsNameIsGoneWithIt) {
  std::string name;
  {
    const Port port;
    name = meeting_of(meeting_place().value(), Party{port.address});
    EXPECT_TRUE(std::filesystem::is_socket(name));
  }
  EXPECT_FALSE(std::filesystem::exists(name));
}

}  // namespace
}  // namespace fairlead::soft::local::test
