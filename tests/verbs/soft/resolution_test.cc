// ARP and neighbour discovery, byte by byte.
#include "verbs/soft/wire/resolution.h"

#include <gtest/gtest.h>

#include <random>

#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr Mac kMac{{0x02, 0, 0, 0, 0, 0x0a}};
constexpr Mac kPeerMac{{0x02, 0, 0, 0, 0, 0x0b}};
const Gid kIp = Gid::from_ipv4(0x0a000001);
const Gid kPeerIp = Gid::from_ipv4(0x0a000002);

Gid link_local(std::uint8_t last) {
  Gid gid;
  gid.bytes = {0xfe, 0x80};
  gid.bytes[13] = 0xab;
  gid.bytes[15] = last;
  return gid;
}

std::vector<std::uint8_t> bytes_of(const ResolutionFrame& frame) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < frame.size; ++i) bytes.push_back(static_cast<std::uint8_t>(frame.bytes[i]));
  return bytes;
}
std::span<const std::byte> span_of(const ResolutionFrame& frame) { return std::span(frame.bytes).first(frame.size); }

TEST(Resolution, ArpRequestAsTheRfcHasIt) {
  std::vector<std::uint8_t> expected = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0,  0x0a, 0x08, 0x06,
                                        0,    1,    8,    0,    6,    4,    0, 1, 2, 0, 0,  0,    0,    0x0a,
                                        10,   0,    0,    1,    0,    0,    0, 0, 0, 0, 10, 0,    0,    2};
  expected.resize(60);
  EXPECT_EQ(bytes_of(ask(kIp, kMac, kPeerIp)), expected);
}

TEST(Resolution, NeighbourSolicitationAsTheRfcHasIt) {
  const std::vector<std::uint8_t> bytes = bytes_of(ask(link_local(1), kMac, link_local(2)));
  ASSERT_EQ(bytes.size(), 86U);
  const std::vector<std::uint8_t> ethernet = {0x33, 0x33, 0xff, 0xab, 0, 2, 2, 0, 0, 0, 0, 0x0a, 0x86, 0xdd};
  EXPECT_TRUE(std::equal(ethernet.begin(), ethernet.end(), bytes.begin()));
  EXPECT_EQ(bytes[14], 0x60);
  EXPECT_EQ(bytes[19], 32);   // payload
  EXPECT_EQ(bytes[20], 58);   // ICMPv6
  EXPECT_EQ(bytes[21], 255);  // hop limit
  const std::vector<std::uint8_t> group = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xab, 0, 2};
  EXPECT_TRUE(std::equal(group.begin(), group.end(), bytes.begin() + 38));
  EXPECT_EQ(bytes[54], 135);
  EXPECT_EQ(bytes[78], 1);  // source link-layer address
  EXPECT_EQ(bytes[79], 1);
}

TEST(Resolution, WhatIsAskedAndAnsweredIsUnderstood) {
  for (const auto& [own, peer] : {std::pair(kIp, kPeerIp), std::pair(link_local(1), link_local(2))}) {
    SCOPED_TRACE(to_string(own));
    const auto question = parse_resolution(span_of(ask(own, kMac, peer)));
    ASSERT_TRUE(question);
    EXPECT_EQ(question->kind, Resolution::Kind::kQuestion);
    EXPECT_EQ(question->sender, own);
    EXPECT_EQ(question->sender_mac, kMac);
    EXPECT_EQ(question->target, peer);
    const auto reply = parse_resolution(span_of(answer(peer, kPeerMac, own, kMac)));
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->kind, Resolution::Kind::kAnswer);
    EXPECT_EQ(reply->target, peer);
    EXPECT_EQ(reply->target_mac, kPeerMac);
    const auto unasked = parse_resolution(span_of(announce(own, kMac)));
    ASSERT_TRUE(unasked);
    EXPECT_EQ(unasked->kind, Resolution::Kind::kAnswer);
    EXPECT_EQ(unasked->target, own);
    EXPECT_EQ(unasked->target_mac, kMac);
    const ResolutionFrame probe = ask(own, kMac, peer, &kPeerMac);
    EXPECT_EQ(EthernetHeader::decode(probe.bytes.data()).destination, kPeerMac);
  }
}

TEST(Resolution, WhatIsDamagedOrCutIsNot) {
  const ResolutionFrame frame = ask(link_local(1), kMac, link_local(2));
  for (std::size_t size = 0; size < frame.size; ++size) {
    EXPECT_FALSE(parse_resolution(std::span(frame.bytes).first(size))) << size;
  }
  for (std::size_t at = 54; at < frame.size; ++at) {  // ICMPv6 has a checksum
    ResolutionFrame damaged = frame;
    damaged.bytes[at] ^= std::byte{0x10};
    EXPECT_FALSE(parse_resolution(span_of(damaged))) << at;
  }
  ResolutionFrame routed = frame;
  routed.bytes[21] = std::byte{254};
  EXPECT_FALSE(parse_resolution(span_of(routed)));
  const ResolutionFrame arp = ask(kIp, kMac, kPeerIp);
  for (std::size_t size = 0; size < 42; ++size) {
    EXPECT_FALSE(parse_resolution(std::span(arp.bytes).first(size))) << size;
  }
}

TEST(Resolution, AnyBytesAreReadWithinTheirBounds) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    ResolutionFrame frame = round % 2 == 0 ? ask(link_local(1), kMac, link_local(2)) : ask(kIp, kMac, kPeerIp);
    std::vector<std::byte> bytes(frame.bytes.begin(), frame.bytes.begin() + random() % (frame.size + 1));
    for (unsigned i = 0; i < random() % 4 && !bytes.empty(); ++i) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    static_cast<void>(parse_resolution(bytes));
  }
}

TEST(IpHeader, IsTheSameAfterItsBytes) {
  for (const auto& [own, peer] : {std::pair(kIp, kPeerIp), std::pair(link_local(1), link_local(2))}) {
    IpHeader header{own, peer, IpProtocol::kUdp, 0xb9, 7, 0x1234, kIpv4DontFragment, 5};
    std::array<std::byte, 60> bytes{};
    header.encode(bytes.data());
    const auto back = IpHeader::decode(std::span(bytes).first(header.bytes() + 5));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->source, own);
    EXPECT_EQ(back->destination, peer);
    EXPECT_EQ(back->traffic_class, 0xb9);
    EXPECT_EQ(back->hop_limit, 7);
    EXPECT_EQ(back->payload_bytes, 5U);
    if (own.is_ipv4()) {
      EXPECT_EQ(back->ipv4_id, 0x1234);
    }
    EXPECT_FALSE(IpHeader::decode(std::span(bytes).first(header.bytes() + 4)));
  }
}

TEST(InternetChecksum, OfTheExampleInRfc1071) {
  const std::array<std::byte, 8> bytes = {std::byte{0x00}, std::byte{0x01}, std::byte{0xf2}, std::byte{0x03},
                                          std::byte{0xf4}, std::byte{0xf5}, std::byte{0xf6}, std::byte{0xf7}};
  EXPECT_EQ(internet_checksum(internet_sum(bytes)), static_cast<std::uint16_t>(~0xddf2));
}

}  // namespace
}  // namespace fairlead::soft
