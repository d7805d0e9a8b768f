// Ports that own their wire: what they put on it, whom they ask and answer, what they take for theirs.
#include "verbs/soft/port/frame/frame_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>

#include "tests/verbs/soft/endpoint.h"
#include "tests/verbs/soft/segment.h"
#include "verbs/soft/port/received_grh.h"
#include "verbs/soft/rc/message_packets.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/resolution.h"

namespace fairlead::soft::test {
namespace {

constexpr Nanos kStart = 5 * kSecond;

Gid ipv6(std::uint8_t last) {
  Gid gid;
  gid.bytes = {0x20, 0x01, 0x0d, 0xb8};
  gid.bytes[15] = last;
  return gid;
}

struct Station {
  Station(Segment& segment, std::uint8_t number, FramePortConfig config, std::uint32_t mtu = 4200) {
    auto made = std::make_unique<MemoryDevice>(segment, number, mtu);
    device = made.get();
    port = std::make_unique<FramePort>(std::move(made), config, kStart);
  }
  Station(Segment& segment, std::uint8_t number)
      : Station(segment, number, {Gid::from_ipv4(0x0a000000U + number), 24, {}}) {}

  /// What a poll brings. Bytes stay valid until the next.
  std::vector<RxPacket> poll(Nanos now = kStart) {
    std::array<RxPacket, 16> packets;
    const std::size_t count = port->rx_burst(packets, now);
    return {packets.begin(), packets.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  void send(const Route& route, std::size_t payload = 0, std::uint8_t fill = 0) {
    std::vector<std::byte> bytes(payload, std::byte{fill});
    TxBatch batch;
    Bth bth;
    bth.opcode = 0x0a;
    bth.dest_qpn = 0x123456;
    bth.encode(batch.begin(route, Bth::kBytes, payload));
    ASSERT_TRUE(batch.payload(bytes.data(), bytes.size()));
    batch.finish(0);
    port->tx_burst(batch);
    EXPECT_TRUE(batch.empty());
  }

  MemoryDevice* device;
  std::unique_ptr<FramePort> port;
};

class FramePortTest : public testing::TestWithParam<bool> {
 protected:
  FramePortTest() : a(segment, 1, config(1)), b(segment, 2, config(2)) {
    for (Station* each : {&a, &b}) each->poll();
    for (Station* each : {&a, &b}) each->poll();
    segment.seen.clear();
  }
  static FramePortConfig config(std::uint8_t number) {
    if (GetParam()) return {ipv6(number), 64, {}};
    return {Gid::from_ipv4(0x0a000000U + number), 24, {}};
  }
  /// Polls both until nothing is left to answer; what b received last.
  std::size_t settle(Nanos now = kStart) {
    std::size_t received = 0;
    for (int i = 0; i < 4; ++i) {
      a.poll(now);
      received += b.poll(now).size();
    }
    return received;
  }

  Segment segment;
  Station a;
  Station b;
};

INSTANTIATE_TEST_SUITE_P(Families, FramePortTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "IPv6" : "IPv4"; });

bool icrc_right(const RxPacket& packet, const Gid& to) {
  const UdpFrame frame{
      packet.source,    to, packet.source_port, kRoceUdpPort, packet.ipv4_id_guess, packet.bytes.size(),
      packet.ipv4_flags};
  const auto covered = packet.bytes.first(packet.bytes.size() - kIcrcBytes);
  return packet.ipv4_id_known && icrc(frame, covered) == load_icrc(covered.data() + covered.size());
}

TEST_P(FramePortTest, AsksOnceThenSends) {
  const Route route = a.port->make_route(b.port->address(), 7, 0xb8, 9);
  EXPECT_EQ(segment.seen.size(), 1U);  // at once
  a.send(route, 1000, 0x5a);           // waits for the answer
  EXPECT_EQ(settle(), 1U);
  a.send(route, 300, 0x77);
  const auto got = b.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].source, a.port->address());
  EXPECT_EQ(got[0].source_port, route.source_port);
  EXPECT_EQ(got[0].traffic_class, 0xb8);
  EXPECT_EQ(got[0].bytes.size(), 12U + 300U + 4U);
  EXPECT_EQ(got[0].bytes[20], std::byte{0x77});
  EXPECT_TRUE(icrc_right(got[0], b.port->address()));
  // A question, its answer, and two packets.
  EXPECT_EQ(segment.seen.size(), 4U);
  EXPECT_EQ(a.port->refused(), 0U);
}

TEST_P(FramePortTest, WhoAsksIsKnownToWhoAnswers) {
  a.send(a.port->make_route(b.port->address(), 7, 0, 0));
  settle();
  segment.seen.clear();
  b.send(b.port->make_route(a.port->address(), 7, 0, 0));
  EXPECT_EQ(a.poll().size(), 1U);
  EXPECT_EQ(segment.seen.size(), 1U);
}

TEST_P(FramePortTest, ItsOwnAddressComesBackInside) {
  a.send(a.port->make_route(a.port->address(), 7, 0, 0), 40, 3);
  EXPECT_EQ(a.port->next_event(), kStart);
  const auto got = a.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(icrc_right(got[0], a.port->address()));
  EXPECT_TRUE(segment.seen.empty());
}

TEST_P(FramePortTest, WhatIsNotForItIsNotTaken) {
  const Route route = a.port->make_route(b.port->address(), 7, 0, 0);
  a.send(route, 100);
  ASSERT_EQ(settle(), 1U);
  const std::vector<std::byte> good = segment.seen.back();
  const auto taken = [&](auto&& alter) {
    std::vector<std::byte> frame = good;
    alter(frame);
    b.device->arrived.push_back(frame);
    return b.poll().size();
  };
  EXPECT_EQ(taken([](auto&) {}), 1U);
  EXPECT_EQ(taken([](auto& f) { f.resize(f.size() + 10); }), 1U) << "padding";
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(taken([=](auto& f) { f.resize(length); }), 0U) << length;
  }
  EXPECT_EQ(taken([](auto& f) { f[5] ^= std::byte{1}; }), 0U) << "another station";
  EXPECT_EQ(taken([](auto& f) { f[12] ^= std::byte{1}; }), 0U) << "another type";
  const std::size_t ip = EthernetHeader::kBytes;
  const std::size_t udp = ip + (GetParam() ? kIpv6HeaderBytes : kIpv4HeaderBytes);
  EXPECT_EQ(taken([=](auto& f) { f[ip] ^= std::byte{0x30}; }), 0U) << "version";
  EXPECT_EQ(taken([=](auto& f) { f[udp - 1] ^= std::byte{1}; }), 0U) << "another address";
  EXPECT_EQ(taken([=](auto& f) { f[udp + 3] ^= std::byte{1}; }), 0U) << "another port";
  EXPECT_EQ(taken([=](auto& f) { f[udp + 5] ^= std::byte{4}; }), 0U) << "UDP length";
}

TEST_P(FramePortTest, AnAbsentPeerIsAskedForAgainButNotForEver) {
  const Gid absent = GetParam() ? ipv6(9) : Gid::from_ipv4(0x0a000009);
  const Route route = a.port->make_route(absent, 7, 0, 0);
  for (int i = 0; i < 300; ++i) a.send(route);
  EXPECT_EQ(a.port->refused(), 300U - 256U);
  Nanos now = kStart;
  while (a.port->next_event() != 0 && now < kStart + 60 * kSecond) a.poll(now += kMillisecond);
  const std::size_t questions = segment.seen.size();
  EXPECT_GE(questions, 4U);
  EXPECT_LE(questions, 12U);
  // Whoever sends to it asks again.
  a.send(route);
  EXPECT_EQ(segment.seen.size(), questions + 1);
}

TEST_P(FramePortTest, APeerThatComesBackWithAnotherStationIsFound) {
  const Route route = a.port->make_route(b.port->address(), 7, 0, 0);
  a.send(route);
  ASSERT_EQ(settle(), 1U);
  b.device->up = false;
  Station again(segment, 3, config(2));
  again.poll();  // announces itself
  a.poll();
  a.send(route);
  EXPECT_EQ(again.poll().size(), 1U);
}

TEST_P(FramePortTest, AfterTheLinkWasCutEverybodyIsAskedAgain) {
  const Route route = a.port->make_route(b.port->address(), 7, 0, 0);
  a.send(route);
  ASSERT_EQ(settle(), 1U);
  a.device->up = false;
  a.poll(kStart + 5 * kMillisecond);
  a.send(route);
  EXPECT_EQ(a.port->refused(), 1U);
  a.device->up = true;
  segment.seen.clear();
  EXPECT_EQ(settle(kStart + 10 * kMillisecond), 0U);
  EXPECT_EQ(segment.seen.size(), 3U);  // an announcement, a question, its answer
  a.send(route);
  EXPECT_EQ(b.poll().size(), 1U);
}

TEST_P(FramePortTest, TheLinkOfItsDeviceIsTheStateOfThePort) {
  EXPECT_EQ(a.port->link(), LinkState::kUp);
  a.device->up = false;
  EXPECT_EQ(a.port->link(), LinkState::kDown);
}

TEST_P(FramePortTest, AUsedNeighbourIsProbedAndLostWhenItDoesNotAnswer) {
  const Route route = a.port->make_route(b.port->address(), 7, 0, 0);
  a.send(route);
  ASSERT_EQ(settle(), 1U);
  segment.seen.clear();
  Nanos now = kStart + 31 * kSecond;
  a.send(route);
  a.poll(now);
  ASSERT_EQ(segment.seen.size(), 2U);  // the packet, and a question to the station itself
  EXPECT_EQ(segment.seen[1][5], std::byte{2});
  b.device->arrived.clear();
  for (int i = 0; i < 20; ++i) a.poll(now += 100 * kMillisecond);
  EXPECT_EQ(segment.seen.back()[0], GetParam() ? std::byte{0x33} : std::byte{0xff});  // everybody
  segment.seen.clear();
  a.send(route);
  for (const auto& frame : segment.seen)
    EXPECT_NE(EthernetHeader::decode(frame.data()).destination, b.device->info().mac);
}

TEST_P(FramePortTest, ADeviceWithoutMemoryLosesWhatItIsGiven) {
  const Route route = a.port->make_route(b.port->address(), 7, 0, 0);
  a.send(route);
  ASSERT_EQ(settle(), 1U);
  a.device->rooms_left = 0;
  a.send(route);
  EXPECT_EQ(a.port->refused(), 1U);
  a.device->rooms_left = 1000;
  a.send(route);
  EXPECT_EQ(b.poll().size(), 1U);
}

// RoCE v1 from 10.0.0.1 to 10.0.0.2: a WRITE's only packet of 8 bytes, traffic class 0xb8, flow label 0x12345, 9 hops.
// The ICRC is zlib's CRC-32 over eight bytes of ones, the masked headers and the payload.
constexpr std::uint8_t kV1Frame[] = {
    0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x89, 0x15,              //
    0x6b, 0x81, 0x23, 0x45, 0x00, 0x18, 0x1b, 0x09,                                                  //
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x0a, 0x00, 0x00, 0x01,  //
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x0a, 0x00, 0x00, 0x02,  //
    0x0a, 0x00, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x00, 0x00, 0x00,                          //
    0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0xb9, 0x67, 0x91, 0xd3};

TEST(FramePort, RoceV1HasAGrhInPlaceOfIpAndUdp) {
  Segment segment;
  Station a(segment, 1), b(segment, 2);
  for (int i = 0; i < 2; ++i) a.poll(), b.poll();
  const auto route = a.port->make_v1_route(a.port->address(), b.port->address(), 0x12345, 0xb8, 9);
  ASSERT_TRUE(route);
  a.send(*route, 8, 0x5a);  // waits for the station's address
  b.poll();
  a.poll();
  const auto expected = std::as_bytes(std::span(kV1Frame));
  ASSERT_EQ(segment.seen.back(), std::vector(expected.begin(), expected.end()));
  const auto got = b.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].version, RoceVersion::kV1);
  EXPECT_EQ(got[0].source, a.port->address());
  EXPECT_FALSE(got[0].to_link_local);
  EXPECT_EQ(got[0].hop_limit, 9);
  EXPECT_EQ(got[0].flow_label, 0x12345U);
  EXPECT_EQ(got[0].traffic_class, 0xb8);
  const auto covered = got[0].bytes.first(got[0].bytes.size() - kIcrcBytes);
  EXPECT_EQ(icrc(headers_of(got[0], *b.port), covered), load_icrc(covered.data() + covered.size()));
  const auto grh = make_grh(got[0], b.port->address());
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), expected.begin() + EthernetHeader::kBytes));
}

TEST(FramePort, ARoceV1FrameThatIsCutOrForAnotherIsNotTaken) {
  Segment segment;
  Station b(segment, 2);
  const auto expected = std::as_bytes(std::span(kV1Frame));
  const auto taken = [&](auto&& alter) {
    std::vector frame(expected.begin(), expected.end());
    alter(frame);
    b.device->arrived.push_back(frame);
    return b.poll().size();
  };
  EXPECT_EQ(taken([](auto&) {}), 1U);
  EXPECT_EQ(taken([](auto& f) { f.resize(f.size() + 10); }), 1U) << "padding";
  for (std::size_t length = 0; length < expected.size(); ++length) {
    EXPECT_EQ(taken([=](auto& f) { f.resize(length); }), 0U) << length;
  }
  EXPECT_EQ(taken([](auto& f) { f[14] ^= std::byte{0x30}; }), 0U) << "version";
  EXPECT_EQ(taken([](auto& f) { f[20] ^= std::byte{1}; }), 0U) << "what follows";
  EXPECT_EQ(taken([](auto& f) { f[53] ^= std::byte{1}; }), 0U) << "another GID";
}

TEST(FramePort, LinkLocalPeersOfRoceV1AreFoundWithoutAQuestion) {
  Segment segment;
  Station a(segment, 1), b(segment, 2);
  for (int i = 0; i < 2; ++i) a.poll(), b.poll();
  segment.seen.clear();
  const auto route = a.port->make_v1_route(a.port->link_local(), b.port->link_local(), 0, 0, 0);
  ASSERT_TRUE(route);
  a.send(*route, 8);
  ASSERT_EQ(segment.seen.size(), 1U);
  const auto got = b.poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_TRUE(got[0].to_link_local);
  EXPECT_EQ(got[0].source, a.port->link_local());
  a.poll(kStart + 60 * kSecond);  // nor is the station asked for later
  a.send(*route, 8);
  EXPECT_EQ(segment.seen.size(), 2U);
  // What is answered goes the same way.
  EXPECT_EQ(b.port->make_route(a.port->link_local(), 1, 0, 0).version, RoceVersion::kV1);
  // An address of the other family that tells no station cannot be found.
  EXPECT_FALSE(a.port->make_v1_route(a.port->address(), ipv6(9), 0, 0, 0));
}

TEST(FramePort, RoceV1HasTheLargerHeader) {
  Segment segment;
  const auto mtus = [&](std::uint32_t interface) {
    const Station station(segment, 1, {Gid::from_ipv4(0x0a000001), 24, {}}, interface);
    return std::pair(station.port->max_mtu(), station.port->max_v1_mtu());
  };
  EXPECT_EQ(mtus(4171), std::pair(4096U, 2048U));
  EXPECT_EQ(mtus(4172), std::pair(4096U, 4096U));
  EXPECT_EQ(mtus(320), std::pair(256U, 0U));
}

TEST(FramePort, AFragmentOrAHeaderThatWasDamagedIsNotTaken) {
  Segment segment;
  Station a(segment, 1), b(segment, 2);
  a.send(a.port->make_route(b.port->address(), 7, 0, 0));
  for (int i = 0; i < 4; ++i) a.poll(), b.poll();
  std::vector<std::byte> frame = segment.seen.back();
  const std::size_t ip = EthernetHeader::kBytes;
  const auto taken = [&](std::uint16_t flags) {
    store16(&frame[ip + 6], flags);
    store16(&frame[ip + 10], 0);
    store16(&frame[ip + 10], internet_checksum(internet_sum(std::span(frame).subspan(ip, kIpv4HeaderBytes))));
    b.device->arrived.push_back(frame);
    return b.poll();
  };
  EXPECT_EQ(taken(0x4000).size(), 1U);
  EXPECT_EQ(taken(0x2000).size(), 0U);
  EXPECT_EQ(taken(0x0001).size(), 0U);
  const auto without_df = taken(0);
  ASSERT_EQ(without_df.size(), 1U);
  EXPECT_FALSE(icrc_right(without_df[0], b.port->address()));  // it is covered
  frame[ip + 10] ^= std::byte{1};
  b.device->arrived.push_back(frame);
  EXPECT_EQ(b.poll().size(), 0U);
}

TEST(FramePort, BeyondItsNetworkTheGatewayIsAsked) {
  Segment segment;
  Station a(segment, 1, {Gid::from_ipv4(0x0a000001), 24, Gid::from_ipv4(0x0a000002)});
  Station gateway(segment, 2);
  a.poll();
  gateway.poll();
  const Route far = a.port->make_route(Gid::from_ipv4(0xc0a80001), 7, 0, 0);
  const Route near = a.port->make_route(Gid::from_ipv4(0x0a000077), 7, 0, 0);
  EXPECT_NE(far.socket, near.socket);
  gateway.poll();
  a.poll();
  segment.seen.clear();
  a.send(far);
  ASSERT_EQ(segment.seen.size(), 1U);
  EXPECT_EQ(segment.seen[0][5], std::byte{2});
  EXPECT_EQ(load32(&segment.seen[0][EthernetHeader::kBytes + 16]), 0xc0a80001U);
  a.send(near);
  EXPECT_EQ(segment.seen.size(), 1U);
}

TEST(FramePort, ThePathMtuIsWhatFits) {
  Segment segment;
  EXPECT_EQ(Station(segment, 1, {Gid::from_ipv4(1 << 24 | 1), 24, {}}, 4160).port->max_mtu(), 4096U);
  EXPECT_EQ(Station(segment, 1, {Gid::from_ipv4(1 << 24 | 1), 24, {}}, 1500).port->max_mtu(), 1024U);
  EXPECT_EQ(Station(segment, 1, {ipv6(1), 64, {}}, 4160).port->max_mtu(), 2048U);
  EXPECT_EQ(Station(segment, 1, {Gid::from_ipv4(1 << 24 | 1), 24, {}}, 300).port->max_mtu(), 0U);
}

TEST(FramePort, ThePeersWindowIsTheDevicesIfItKnowsOne) {
  Segment segment;
  const FramePort unknown(std::make_unique<MemoryDevice>(segment, 1), {}, kStart);
  EXPECT_EQ(unknown.peer_window(), std::size_t{192} << 10);
  EXPECT_EQ(unknown.least_charge(), 1024U);
  const FramePort known(std::make_unique<MemoryDevice>(segment, 2, 4200, 256), {}, kStart);
  EXPECT_EQ(known.peer_window() / known.least_charge(), 256U);
  EXPECT_EQ(known.least_charge(), requester::packet_charge(4096, 0));
}

TEST(FramePort, AnAddressOfItsOwnIsLinkLocalAndTheStations) {
  Segment segment;
  Station a(segment, 1, {}), again(segment, 1, {}), b(segment, 2, {});
  EXPECT_EQ(a.port->address(), again.port->address());
  EXPECT_NE(a.port->address(), b.port->address());
  EXPECT_EQ(a.port->address().ipv4() >> 16, 0xa9feU);
}

// One end of shared memory. The other answers questions about its address while `answering`, in the order of the
// frames.
class SharedDevice final : public FrameDevice {
 public:
  static constexpr Mac kOwn{{2, 0, 0, 0, 0, 1}};
  static constexpr Mac kPeer{{2, 0, 0, 0, 0, 2}};

  struct Wire {
    Gid peer;
    bool answering = false;
    int looks_left = 1000;   // at the link, before it goes
    std::string order = {};  // of what was sent: a question, or a packet
  };

  explicit SharedDevice(Wire& wire) : wire_(wire) {}
  [[nodiscard]] FrameDeviceInfo info() const noexcept override {
    return {.mac = kOwn, .mtu = 4200, .peer_slots = 192, .link_is_peer = true};
  }
  std::size_t receive(std::span<std::span<const std::byte>> frames) noexcept override {
    if (arrived_.empty()) return 0;
    handed_out_ = arrived_.front();
    arrived_.pop_front();
    frames[0] = std::span<const std::byte>(handed_out_.bytes).first(handed_out_.size);
    return 1;
  }
  std::size_t reserve(std::span<std::byte*> rooms) noexcept override {
    rooms_.resize(rooms.size());
    for (std::size_t i = 0; i < rooms.size(); ++i) rooms[i] = rooms_[i].data();
    return rooms.size();
  }
  std::size_t send(std::span<const std::uint32_t> sizes) noexcept override {
    std::size_t sent = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) continue;
      ++sent;
      const auto question = parse_resolution(std::span<const std::byte>(rooms_[i]).first(sizes[i]));
      const bool asks = question && question->target == wire_.peer;
      if (asks || !question) wire_.order += asks ? 'q' : 'p';
      if (asks && wire_.answering) arrived_.push_back(answer(wire_.peer, kPeer, question->sender, kOwn));
    }
    return sent;
  }
  [[nodiscard]] bool link_up() noexcept override { return wire_.looks_left-- > 0; }

 private:
  Wire& wire_;
  std::deque<ResolutionFrame> arrived_;
  ResolutionFrame handed_out_;
  std::vector<std::array<std::byte, 4300>> rooms_;
};

// An acknowledgement, say, that a program owes when it ends: the peer has not answered who it is, nor taken anything.
TEST(FramePortParting, WhatWasSentLastIsTakenBeforeThePortGoes) {
  for (const bool known : {false, true}) {
    SharedDevice::Wire wire{.peer = Gid::from_ipv4(0x0a000002), .answering = known};
    auto port = std::make_unique<FramePort>(std::make_unique<SharedDevice>(wire),
                                            FramePortConfig{Gid::from_ipv4(0x0a000001), 24, {}}, kStart);
    const Route route = port->make_route(wire.peer, 1, 0, 0);
    std::array<RxPacket, 4> none;
    EXPECT_EQ(port->rx_burst(none, kStart), 0U);
    TxBatch batch;
    Bth{}.encode(batch.begin(route, Bth::kBytes, 0));
    batch.finish(0);
    port->tx_burst(batch);
    EXPECT_EQ(wire.order.find('p') != std::string::npos, known) << wire.order;
    wire.answering = true;
    port.reset();
    EXPECT_EQ(std::ranges::count(wire.order, 'p'), 1) << wire.order;
    EXPECT_EQ(wire.order.back(), 'q') << "nothing shows that the peer took it: " << wire.order;
  }
}

TEST(FramePortParting, EndsWithTheLink) {
  SharedDevice::Wire wire{.peer = Gid::from_ipv4(0x0a000002)};
  auto port = std::make_unique<FramePort>(std::make_unique<SharedDevice>(wire),
                                          FramePortConfig{Gid::from_ipv4(0x0a000001), 24, {}}, kStart);
  const Route route = port->make_route(wire.peer, 1, 0, 0);
  TxBatch batch;
  Bth{}.encode(batch.begin(route, Bth::kBytes, 0));
  batch.finish(0);
  port->tx_burst(batch);
  wire.looks_left = 10;
  port.reset();
  EXPECT_LE(wire.looks_left, 0);
}

}  // namespace
}  // namespace fairlead::soft::test
