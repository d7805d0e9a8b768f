// The UDP port by itself, over both families, on loopback.
#include "verbs/soft/port/udp/udp_port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/out_of_descriptors.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

Gid ipv6_loopback() {
  Gid gid;
  gid.bytes[15] = 1;
  return gid;
}

const Gid kNobodys = Gid::from_ipv4(0xc0000201);  // 192.0.2.1, of no host (RFC 5737)

// Everything that comes within a moment, as copies.
struct Arrived {
  std::vector<std::byte> bytes;
  RxPacket packet;
};
std::vector<Arrived> receive(UdpPort& port, std::size_t count) {
  std::vector<Arrived> all;
  std::array<RxPacket, 16> packets;
  while (all.size() < count) {
    const std::size_t got = port.rx_burst(packets, 0);
    pollfd ready{port.wait_fd(), POLLIN, 0};
    if (got == 0 && ::poll(&ready, 1, 2000) != 1) break;
    for (std::size_t i = 0; i < got; ++i) {
      all.push_back({{packets[i].bytes.begin(), packets[i].bytes.end()}, packets[i]});
    }
  }
  return all;
}

void check_round_trip(const Gid& address) {
  auto socket = bind_roce_port(address, PortUse::kReceive);
  if (!socket) GTEST_SKIP() << socket.error().message();
  UdpPort port(interface_of(address), std::move(*socket));
  EXPECT_EQ(port.max_mtu(), 4096U);
  port.report_traffic_class();
  const Route route = port.make_route(address, 77, 0x68 | 3, 9);  // congestion experienced
  TxBatch batch;
  std::vector<std::byte> payload(1000);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 11);
  constexpr std::uint32_t kQpns[] = {0x123456, 0x123456, 0x123456, 0xabcdef};
  for (const std::uint32_t qpn : kQpns) {
    Bth bth;
    bth.dest_qpn = qpn;
    bth.encode(batch.begin(route, Bth::kBytes, payload.size()));
    batch.payload(payload.data(), payload.size());
    batch.finish(0);
  }
  port.tx_burst(batch);
  const std::vector<Arrived> arrived = receive(port, std::size(kQpns));
  ASSERT_EQ(arrived.size(), std::size(kQpns));
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    const auto& [bytes, packet] = arrived[i];
    EXPECT_EQ(packet.source, address);
    EXPECT_EQ(packet.source_port, route.source_port);
    EXPECT_EQ(packet.traffic_class, 0x68 | 3);
    ASSERT_EQ(bytes.size(), Bth::kBytes + payload.size() + kIcrcBytes);
    EXPECT_EQ(Bth::decode(bytes.data()).dest_qpn, kQpns[i]);
    EXPECT_EQ(std::memcmp(&bytes[Bth::kBytes], payload.data(), payload.size()), 0);
    const UdpFrame frame{address, address, route.source_port, kRoceUdpPort, packet.ipv4_id_guess, bytes.size()};
    const auto covered = std::span(bytes).first(bytes.size() - kIcrcBytes);
    EXPECT_EQ(icrc(frame, covered), load_icrc(bytes.data() + covered.size()));
    // A run of equal packets leaves as segments of one datagram, but only to one queue pair.
    EXPECT_EQ(packet.ipv4_id_guess, i < 3 ? i : 0U);
  }
}

TEST(UdpPort, Ipv4RoundTrip) { check_round_trip(Gid::from_ipv4(0x7f4f0001)); }

TEST(UdpPort, Ipv6RoundTrip) { check_round_trip(ipv6_loopback()); }

struct IpSettings {
  int traffic_class = -1;
  int hop_limit = -1;
};

// Of the datagram that arrives next.
IpSettings receive_settings(int fd) {
  std::array<std::byte, 256> bytes{};
  alignas(cmsghdr) std::array<std::byte, 128> control{};
  iovec iov{bytes.data(), bytes.size()};
  msghdr header{nullptr, 0, &iov, 1, control.data(), control.size(), 0};
  pollfd ready{fd, POLLIN, 0};
  IpSettings settings;
  if (::poll(&ready, 1, 2000) != 1 || ::recvmsg(fd, &header, 0) < 0) return settings;
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    if (at->cmsg_type == IP_TTL || at->cmsg_type == IPV6_HOPLIMIT) {
      std::memcpy(&settings.hop_limit, CMSG_DATA(at), sizeof(int));
    } else if (at->cmsg_type == IP_TOS) {
      settings.traffic_class = std::to_integer<int>(*reinterpret_cast<const std::byte*>(CMSG_DATA(at)));
    } else if (at->cmsg_type == IPV6_TCLASS) {
      std::memcpy(&settings.traffic_class, CMSG_DATA(at), sizeof(int));
    }
  }
  return settings;
}

// Queue pairs share a socket toward a loopback peer, but not their traffic classes and hop limits.
void check_settings(const Gid& address, const Gid& peer) {
  auto socket = bind_roce_port(address, PortUse::kReceive);
  auto far = bind_roce_port(peer, PortUse::kReceive);
  if (!socket || !far) GTEST_SKIP() << (!socket ? socket : far).error().message();
  const bool v4 = peer.is_ipv4();
  const int on = 1;
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  ASSERT_EQ(::setsockopt(far->get(), level, v4 ? IP_RECVTTL : IPV6_RECVHOPLIMIT, &on, sizeof(on)), 0);
  ASSERT_EQ(::setsockopt(far->get(), level, v4 ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof(on)), 0);
  UdpPort port(interface_of(address), std::move(*socket));
  constexpr std::array<std::array<std::uint8_t, 2>, 5> kWanted{{{0x68, 9}, {0, 0}, {0x68, 64}, {4, 9}, {0, 200}}};
  std::vector<Route> routes;
  for (const auto& [traffic_class, hops] : kWanted) routes.push_back(port.make_route(peer, 77, traffic_class, hops));
  routes.push_back(routes.front());
  routes.back().traffic_class |= 2;  // as congestion control does
  for (const Route& route : routes) {
    TxBatch batch;
    Bth{}.encode(batch.begin(route, Bth::kBytes, 0));
    batch.finish(0);
    port.tx_burst(batch);
    const IpSettings got = receive_settings(far->get());
    EXPECT_EQ(got.traffic_class, route.traffic_class);
    EXPECT_EQ(got.hop_limit, route.hop_limit != 0 ? route.hop_limit : kDefaultHopLimit);
  }
}

TEST(UdpPort, AddressesOfThisHostAreKnownFromOthers) {
  const auto all = host_addresses().value();
  for (const InterfaceAddress& each : all) {
    EXPECT_EQ(is_of_host(each.gid), true) << to_string(each.gid);
    EXPECT_EQ(interface_of(each.gid).index, each.index) << to_string(each.gid);
  }
  EXPECT_EQ(is_of_host(Gid::from_ipv4(0x7f080901)), true);
  EXPECT_EQ(is_of_host(ipv6_loopback()), true);
  EXPECT_EQ(is_of_host(kNobodys), false);
  const InterfaceAddress loopback = interface_of(Gid::from_ipv4(0x7f080901));
  EXPECT_TRUE(loopback.loopback);
  EXPECT_NE(loopback.mtu, 0u);
  EXPECT_EQ(loopback.gid, Gid::from_ipv4(0x7f080901));
}

// From a peer of another host packets are taken whatever port they come from.
TEST(UdpPort, WithoutDescriptorsNobodyIsTakenForAPeerOfAnotherHost) {
  const Gid here = Gid::from_ipv4(0x7f4f0001);
  auto socket = bind_roce_port(here, PortUse::kReceive);
  if (!socket) GTEST_SKIP() << socket.error().message();
  UdpPort port(interface_of(here), std::move(*socket));
  for (const int left : {0, 1}) {  // a list takes two
    const fairlead::test::OutOfDescriptors limit(left);
    EXPECT_FALSE(is_of_host(kNobodys).has_value()) << left;
    const Route route = port.make_route(kNobodys, 77, 0, 0);
    EXPECT_EQ(route.error, EMFILE) << left;
    EXPECT_FALSE(host_addresses().has_value()) << left;
    EXPECT_EQ(is_of_host(here), true) << left;
  }
  EXPECT_EQ(port.make_route(kNobodys, 77, 0, 0).error, 0);
}

TEST(UdpPort, Ipv4PacketsHaveTheirRoutesSettings) {
  check_settings(Gid::from_ipv4(0x7f4f0001), Gid::from_ipv4(0x7f4f0002));
}

TEST(UdpPort, Ipv6PacketsHaveTheirRoutesSettings) {
  // One address is all that loopback has, so the port receives elsewhere.
  const auto all = host_addresses().value();
  const auto own = std::ranges::find_if(all, [](const auto& each) { return !each.gid.is_ipv4() && !each.loopback; });
  if (own == all.end()) GTEST_SKIP() << "this host has no IPv6 address beside loopback";
  check_settings(own->gid, ipv6_loopback());
}

// The ICRC covers the IPv4 id. Systems count ids where a socket is connected, and then only such a look could tell.
TEST(UdpPort, WhatLeavesHasTheIpv4IdZero) {
  const auto all = host_addresses().value();
  const auto own = std::ranges::find_if(all, [](const auto& each) { return each.gid.is_ipv4() && !each.loopback; });
  if (own == all.end()) GTEST_SKIP() << "this host has no IPv4 address beside loopback";
  const Gid address = own->gid;
  const UniqueFd sniffer(::socket(AF_INET, SOCK_RAW, IPPROTO_UDP));
  if (!sniffer) GTEST_SKIP() << "raw sockets need CAP_NET_RAW: " << std::strerror(errno);
  auto socket = bind_roce_port(address, PortUse::kReceive);
  if (!socket) GTEST_SKIP() << socket.error().message();
  const SocketAddress local(address, 0);
  ASSERT_EQ(::bind(sniffer.get(), local.get(), local.size()), 0);
  UdpPort port(interface_of(address), std::move(*socket));
  const Route route = port.make_route(address, 77, 0, 0);
  for (int i = 0; i < 3; ++i) {
    TxBatch batch;
    Bth{}.encode(batch.begin(route, Bth::kBytes, 0));
    batch.finish(0);
    port.tx_burst(batch);
    pollfd ready{sniffer.get(), POLLIN, 0};
    std::array<std::byte, 256> frame{};
    do {  // the address is the host's, who may be spoken to by others
      ASSERT_EQ(::poll(&ready, 1, 2000), 1);
      ASSERT_GE(::recv(sniffer.get(), frame.data(), frame.size(), 0), 28);
    } while (load16(&frame[22]) != kRoceUdpPort);
    EXPECT_EQ(load16(&frame[4]), 0U);
  }
}

TxBatch& add(TxBatch& batch, const Route& route, std::uint32_t qpn, std::uint32_t psn,
             std::span<const std::byte> payload) {
  Bth bth;
  bth.dest_qpn = qpn;
  bth.psn = Psn(psn);
  bth.encode(batch.begin(route, Bth::kBytes, payload.size()));
  batch.payload(payload.data(), payload.size());
  batch.finish(0);
  return batch;
}

// A route that cannot segment is that peer's, and what was sent before it is not sent again.
TEST(UdpPort, OneRouteThatDoesNotSegmentLeavesTheOthersAsTheyAre) {
  const Gid here = Gid::from_ipv4(0x7f4f0001);
  std::vector<std::unique_ptr<UdpPort>> ports;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Gid address = Gid::from_ipv4(here.ipv4() + i);
    auto socket = bind_roce_port(address, PortUse::kReceive);
    if (!socket) GTEST_SKIP() << socket.error().message();
    ports.push_back(std::make_unique<UdpPort>(interface_of(address), std::move(*socket)));
  }
  const Route good = ports[0]->make_route(ports[1]->address(), 77, 0, 0);
  const Route bad = ports[0]->make_route(ports[2]->address(), 78, 0, 0);
  ASSERT_NE(good.socket, bad.socket);
  const int on = 1;  // without checksums there is no segmentation: EINVAL
  ASSERT_EQ(::setsockopt(bad.socket, SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
  const std::vector<std::byte> payload(1000, std::byte{7});
  constexpr std::uint32_t kRun = 4;
  for (unsigned round = 0; round < 2; ++round) {
    TxBatch batch;
    for (const Route* route : {&good, &bad, &good}) {
      for (std::uint32_t i = 0; i < kRun; ++i) add(batch, *route, 9, i, payload);
    }
    ports[0]->tx_burst(batch);
    const auto segmented = receive(*ports[1], 2 * kRun);
    ASSERT_EQ(segmented.size(), 2 * kRun);
    for (std::uint32_t i = 0; i < 2 * kRun; ++i) {
      EXPECT_EQ(Bth::decode(segmented[i].bytes.data()).psn, Psn(i % kRun));
      // By what an ICRC verifies with one sees that it left as a segment.
      const UdpFrame frame{here,
                           ports[1]->address(),
                           good.source_port,
                           kRoceUdpPort,
                           static_cast<std::uint16_t>(i % kRun),
                           segmented[i].bytes.size()};
      const auto covered = std::span(segmented[i].bytes).first(segmented[i].bytes.size() - kIcrcBytes);
      EXPECT_EQ(icrc(frame, covered), load_icrc(covered.data() + covered.size())) << round << ", " << i;
    }
    EXPECT_EQ(receive(*ports[2], kRun).size(), kRun);
    std::array<RxPacket, 16> none;
    EXPECT_EQ(ports[1]->rx_burst(none, 0), 0U) << "sent twice";
  }
  EXPECT_EQ(ports[0]->refused(), 0U);
}

// Nobody waits for a full socket under the domain's lock. What it does not take leaves later, in order.
TEST(UdpPort, WhatAFullSocketDoesNotTakeLeavesLater) {
  const Gid here = Gid::from_ipv4(0x7f4f0001);
  const Gid there = Gid::from_ipv4(0x7f4f0002);
  auto socket = bind_roce_port(here, PortUse::kReceive);
  if (!socket) GTEST_SKIP() << socket.error().message();
  UdpPort port(interface_of(here), std::move(*socket));
  const Route route = port.make_route(there, 77, 0, 0);
  ASSERT_TRUE(route.connected);
  // In its place stands a socket that is full as long as nobody reads from its other end.
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd reader(pair[1]);
  ASSERT_EQ(::dup2(pair[0], route.socket), route.socket);
  ::close(pair[0]);
  const std::vector<std::byte> payload(1000, std::byte{7});
  constexpr std::uint32_t kPackets = 400;  // the system's limit is some hundreds at most, of which each takes a few
  for (std::uint32_t psn = 0; psn < kPackets;) {
    TxBatch batch;
    for (unsigned i = 0; i < 8; ++i, ++psn) add(batch, route, psn, psn, payload);  // each to another queue pair
    port.tx_burst(batch);
  }
  EXPECT_EQ(port.refused(), 0U);
  EXPECT_NE(port.next_event(), 0U) << "none waits: the socket took all";
  std::array<RxPacket, 16> none;
  for (std::uint32_t psn = 0; psn < kPackets; ++psn) {
    std::array<std::byte, 2048> bytes;
    ssize_t got = ::recv(reader.get(), bytes.data(), bytes.size(), 0);
    if (got < 0) {
      port.rx_burst(none, 1);
      got = ::recv(reader.get(), bytes.data(), bytes.size(), 0);
    }
    ASSERT_EQ(got, static_cast<ssize_t>(Bth::kBytes + payload.size() + kIcrcBytes)) << psn;
    ASSERT_EQ(Bth::decode(bytes.data()).psn, Psn(psn));
  }
  EXPECT_EQ(port.refused(), 0U);
  EXPECT_EQ(port.next_event(), 0U);
}

// A port at each of two addresses, for messages to and fro and bulk between them.
class Conversation : public testing::Test {
 protected:
  void SetUp() override {
    auto socket = bind_roce_port(kHere, PortUse::kReceive);
    auto far = bind_roce_port(kThere, PortUse::kReceive);
    if (!socket || !far) GTEST_SKIP() << (!socket ? socket : far).error().message();
    here_ = std::make_unique<UdpPort>(interface_of(kHere), std::move(*socket));
    there_ = std::make_unique<UdpPort>(interface_of(kThere), std::move(*far));
    route_ = here_->make_route(kThere, 77, 0, 64);
  }
  // Packets of so many bytes of payload, numbered from `first`.
  void send(std::size_t packets, std::size_t bytes, std::uint32_t first) {
    TxBatch batch;
    std::vector<std::byte> payload(bytes, std::byte{0x5a});
    for (std::size_t i = 0; i < packets; ++i) {
      Bth bth;
      bth.dest_qpn = 0x123456;
      bth.psn = Psn(first + static_cast<std::uint32_t>(i));
      bth.encode(batch.begin(route_, Bth::kBytes, bytes));
      batch.payload(payload.data(), bytes);
      batch.finish(0);
    }
    here_->tx_burst(batch);
  }
  // Messages that each come alone, numbered from 0.
  void converse(std::uint32_t messages) {
    for (std::uint32_t i = 0; i < messages; ++i) {
      send(1, 8, i);
      expect(1, 8, i);
      std::array<RxPacket, 16> none;
      ASSERT_EQ(there_->rx_burst(none, 0), 0U);
    }
  }
  void expect(std::size_t packets, std::size_t bytes, std::uint32_t first) {
    const std::vector<Arrived> arrived = receive(*there_, packets);
    ASSERT_EQ(arrived.size(), packets);
    for (std::size_t i = 0; i < packets; ++i) {
      ASSERT_EQ(arrived[i].bytes.size(), Bth::kBytes + bytes + kIcrcBytes);
      ASSERT_EQ(Bth::decode(arrived[i].bytes.data()).psn, Psn(first + static_cast<std::uint32_t>(i)));
    }
  }
  [[nodiscard]] bool coalesces() const {
    int on = -1;
    socklen_t size = sizeof(on);
    EXPECT_EQ(::getsockopt(there_->wait_fd(), SOL_UDP, UDP_GRO, &on, &size), 0);
    return on == 1;
  }

  const Gid kHere = Gid::from_ipv4(0x7f4f0001);
  const Gid kThere = Gid::from_ipv4(0x7f4f0002);
  std::unique_ptr<UdpPort> here_, there_;
  Route route_;
};

TEST_F(Conversation, IsNotCoalescedUntilBulkComes) {
  EXPECT_TRUE(coalesces());
  converse(2000);
  EXPECT_FALSE(coalesces());
  send(32, 2000, 5);  // meets a socket that takes no coalesced datagrams: the system splits them
  expect(32, 2000, 5);
  EXPECT_TRUE(coalesces());
  converse(100);
  EXPECT_TRUE(coalesces());
  converse(1000);
  EXPECT_FALSE(coalesces());
}

TEST_F(Conversation, ThatTurnsIntoManySmallMessagesIsCoalescedAgain) {
  converse(2000);
  EXPECT_FALSE(coalesces());
  send(32, 8, 5);
  expect(32, 8, 5);
  EXPECT_TRUE(coalesces());
}

// Whichever message of a conversation is the last before bulk, the bulk keeps its segments' sizes.
TEST_F(Conversation, LosesNothingWhereItEnds) {
  for (std::uint32_t messages = 990; messages < 1010; ++messages) {
    send(3, 2000, 0);
    expect(3, 2000, 0);
    ASSERT_TRUE(coalesces());
    converse(messages);
    send(1, 8, 1);
    send(32, 1000, 2);
    expect(1, 8, 1);
    expect(32, 1000, 2);
  }
}

// Linux rxe sends a UDP checksum of zero, which RFC 8200 lets nobody accept unasked.
TEST(UdpPort, Ipv6TakesPacketsWithoutUdpChecksum) {
  auto socket = bind_roce_port(ipv6_loopback(), PortUse::kReceive);
  if (!socket) GTEST_SKIP() << socket.error().message();
  int value = 0;
  socklen_t size = sizeof(value);
  ASSERT_EQ(::getsockopt(socket->get(), IPPROTO_UDP, 102, &value, &size), 0);  // UDP_NO_CHECK6_RX
  EXPECT_EQ(value, 1);
}

TEST(UdpPort, AnAddressThatIsNotTheHostsIsRefused) {
  const auto socket = bind_roce_port(Gid::from_ipv4(0xc6336401), PortUse::kReceive);  // 198.51.100.1
  ASSERT_FALSE(socket);
  EXPECT_NE(socket.error().message().find("198.51.100.1:4791"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::soft
