// The codec against frames that Linux rxe sent (captured on a veth pair, 10.9.0.1 <-> 10.9.0.2).
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "base/crc.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/packet.h"

namespace fairlead::soft {
namespace {

template <typename... T>
std::vector<std::byte> bytes(T... values) {
  return {static_cast<std::byte>(values)...};
}

const Gid kFirst = Gid::from_ipv4(0x0a090001);
const Gid kSecond = Gid::from_ipv4(0x0a090002);

// An acknowledgement, IPv4 id 0xc1ed.
const std::vector<std::byte> kAckFrame = bytes(0x11, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x11, 0x00, 0xe5, 0xe3, 0x3f,
                                               0x1f, 0x00, 0x00, 0x01, 0x2e, 0x5c, 0xb0, 0x46);
const UdpFrame kAckIp{kFirst, kSecond, 0xc121, 4791, 0xc1ed, 20};

// A READ request, IPv4 id 0xc410.
const std::vector<std::byte> kReadFrame =
    bytes(0x0c, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x12, 0x80, 0x6c, 0x3a, 0x06, 0x00, 0x00, 0x56, 0x09, 0xc2, 0x9d,
          0x00, 0x00, 0x00, 0x00, 0x03, 0x57, 0x00, 0x00, 0x10, 0x00, 0xf1, 0x23, 0xc2, 0x56);
const UdpFrame kReadIp{kSecond, kFirst, 0xc144, 4791, 0xc410, 32};

std::span<const std::byte> covered(const std::vector<std::byte>& frame) {
  return std::span(frame).first(frame.size() - kIcrcBytes);
}
std::uint32_t stored_icrc(const std::vector<std::byte>& frame) { return load_icrc(&frame[frame.size() - kIcrcBytes]); }

TEST(Packet, AcknowledgementOfRxe) {
  Packet packet;
  ASSERT_EQ(parse(kAckFrame, packet), ParseError::kNone);
  EXPECT_EQ(packet.info->kind, PacketKind::kAck);
  EXPECT_EQ(packet.bth.dest_qpn, 0x11U);
  EXPECT_EQ(packet.bth.pkey, 0xffff);
  EXPECT_EQ(packet.bth.psn, Psn(0xe5e33f));
  EXPECT_FALSE(packet.bth.ack_request);
  EXPECT_EQ(packet.aeth.syndrome, 0x1f);
  EXPECT_EQ(packet.aeth.msn, 1U);
  EXPECT_TRUE(packet.payload.empty());
}

TEST(Packet, ReadRequestOfRxe) {
  Packet packet;
  ASSERT_EQ(parse(kReadFrame, packet), ParseError::kNone);
  EXPECT_EQ(packet.info->kind, PacketKind::kRead);
  EXPECT_EQ(packet.bth.dest_qpn, 0x12U);
  EXPECT_EQ(packet.bth.psn, Psn(0x6c3a06));
  EXPECT_TRUE(packet.bth.ack_request);
  EXPECT_EQ(packet.reth.address, 0x00005609c29d0000U);
  EXPECT_EQ(packet.reth.rkey, 0x357U);
  EXPECT_EQ(packet.reth.length, 4096U);
}

// The first bytes of a connection request of Linux rxe: a UD SEND to QP 1.
const std::vector<std::byte> kDatagramHead =
    bytes(0x64, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x80, 0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00,
          0x00, 0x01, 0x01, 0x07, 0x02, 0x03);

TEST(Packet, DatagramOfRxe) {
  auto frame = kDatagramHead;
  frame.resize(frame.size() + kIcrcBytes);
  Packet packet;
  ASSERT_EQ(parse(frame, packet), ParseError::kNone);
  EXPECT_EQ(packet.info->kind, PacketKind::kSend);
  EXPECT_EQ(packet.info->service, Service::kUd);
  EXPECT_EQ(packet.bth.dest_qpn, 1U);
  EXPECT_EQ(packet.deth.qkey, 0x80010000U);
  EXPECT_EQ(packet.deth.source_qpn, 1U);
  EXPECT_EQ(packet.payload.size(), 4U);
  std::vector<std::byte> encoded(Bth::kBytes + Deth::kBytes);
  packet.bth.encode(encoded.data());
  packet.deth.encode(&encoded[Bth::kBytes]);
  EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), kDatagramHead.begin()));
}

TEST(Packet, DatagramWithImmediateHasItBehindTheDeth) {
  const auto frame = bytes(0x65, 0x80, 0xff, 0xff, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x09, 0x11, 0x11, 0x11,
                           0x11, 0xff, 0xab, 0xcd, 0xef, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x00);
  Packet packet;
  ASSERT_EQ(parse(frame, packet), ParseError::kNone);
  EXPECT_TRUE(packet.bth.solicited);
  EXPECT_EQ(packet.deth.source_qpn, 0xabcdefU);  // the byte before it is reserved
  EXPECT_EQ(packet.immediate, 0x04030201U);      // network byte order
  EXPECT_TRUE(packet.payload.empty());
  for (std::size_t length = 0; length < frame.size(); length += 4) {
    EXPECT_EQ(parse(std::span(frame).first(length), packet), ParseError::kTooShort) << length;
  }
}

TEST(Opcode, UcHasTheSendsAndWritesOfRc) {
  for (unsigned code = 0; code < 0x20; ++code) {
    const OpcodeInfo& rc = opcode_info(static_cast<std::uint8_t>(code));
    const OpcodeInfo& uc = opcode_info(static_cast<std::uint8_t>(code | 0x20));
    if (code > 0x0b) {
      EXPECT_EQ(uc.kind, PacketKind::kNone) << code;
      continue;
    }
    EXPECT_EQ(uc.kind, rc.kind) << code;
    EXPECT_EQ(uc.service, Service::kUc) << code;
    EXPECT_EQ(uc.first, rc.first) << code;
    EXPECT_EQ(uc.last, rc.last) << code;
    EXPECT_EQ(uc.header_bytes, rc.header_bytes) << code;
  }
}

TEST(Packet, HeadersEncodeToTheSameBytes) {
  for (const auto& frame : {kAckFrame, kReadFrame}) {
    Packet packet;
    ASSERT_EQ(parse(frame, packet), ParseError::kNone);
    std::vector<std::byte> encoded(packet.info->header_bytes);
    packet.bth.encode(encoded.data());
    if (packet.info->reth) packet.reth.encode(&encoded[Bth::kBytes]);
    if (packet.info->aeth) packet.aeth.encode(&encoded[Bth::kBytes]);
    EXPECT_EQ(encoded, std::vector(frame.begin(), frame.begin() + packet.info->header_bytes));
  }
}

TEST(Packet, EveryFieldOfTheBthSurvives) {
  Bth bth;
  bth.opcode = 0x0a;
  bth.solicited = bth.migration = bth.fecn = bth.becn = bth.ack_request = true;
  bth.pad = 3;
  bth.version = 9;
  bth.pkey = 0x1234;
  bth.dest_qpn = 0xabcdef;
  bth.psn = Psn(0x123456);
  std::array<std::byte, Bth::kBytes> encoded;
  bth.encode(encoded.data());
  EXPECT_EQ(std::vector(encoded.begin(), encoded.end()),
            bytes(0x0a, 0xf9, 0x12, 0x34, 0xc0, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56));
  const Bth decoded = Bth::decode(encoded.data());
  EXPECT_EQ(decoded.pad, 3);
  EXPECT_EQ(decoded.version, 9);
  EXPECT_TRUE(decoded.solicited && decoded.migration && decoded.fecn && decoded.becn && decoded.ack_request);
  EXPECT_EQ(decoded.dest_qpn, 0xabcdefU);
}

TEST(Packet, ACarriedAcknowledgementIsTheLastHeader) {
  const OpcodeInfo& info = opcode_info(static_cast<std::uint8_t>(carrying(Opcode::kWriteOnlyImmediate)));
  std::vector<std::byte> bytes(info.header_bytes + 8 + kIcrcBytes);
  Bth bth;
  bth.opcode = static_cast<std::uint8_t>(carrying(Opcode::kWriteOnlyImmediate));
  bth.psn = Psn(0x123456);
  bth.kin = true;
  bth.encode(bytes.data());
  Reth{0x1122334455667788, 0x99aabbcc, 8}.encode(&bytes[Bth::kBytes]);
  CarriedAck{Psn(0xabcdef), {0x1f, 0x10203}}.encode(&bytes[info.header_bytes - CarriedAck::kBytes]);
  Packet packet;
  ASSERT_EQ(parse(bytes, packet), ParseError::kNone);
  EXPECT_TRUE(packet.bth.kin);
  EXPECT_FALSE(packet.bth.receipt_request);
  EXPECT_EQ(packet.reth.length, 8U);
  EXPECT_EQ(packet.payload.size(), 8U);
  const Packet carried = carried_by(packet);
  EXPECT_EQ(carried.info->kind, PacketKind::kAck);
  EXPECT_EQ(carried.bth.psn, Psn(0xabcdef));
  EXPECT_EQ(carried.aeth.syndrome, 0x1f);
  EXPECT_EQ(carried.aeth.msn, 0x10203U);
  bytes.resize(info.header_bytes);
  EXPECT_EQ(parse(bytes, packet), ParseError::kTooShort);
}

TEST(Packet, TruncatedAtEveryLengthIsRefused) {
  Packet packet;
  for (std::size_t length = 0; length < kReadFrame.size(); ++length) {
    EXPECT_NE(parse(std::span(kReadFrame).first(length), packet), ParseError::kNone) << length;
  }
}

TEST(Packet, WhatNoServiceHasIsRefused) {
  Packet packet;
  auto frame = kReadFrame;
  frame[0] = std::byte{0x44};  // RD SEND only
  EXPECT_EQ(parse(frame, packet), ParseError::kOpcode);
  frame = kReadFrame;
  frame[1] = std::byte{0x01};
  EXPECT_EQ(parse(frame, packet), ParseError::kVersion);
  frame = kAckFrame;
  frame[1] = std::byte{0x10};  // a byte of padding, where there is no payload
  EXPECT_EQ(parse(frame, packet), ParseError::kPadding);
}

TEST(Icrc, OfFramesOfRxe) {
  EXPECT_EQ(icrc(kAckIp, covered(kAckFrame)), stored_icrc(kAckFrame));
  EXPECT_EQ(icrc(kReadIp, covered(kReadFrame)), stored_icrc(kReadFrame));
}

TEST(Icrc, IgnoresCongestionMarksAndNothingElse) {
  for (std::size_t bit = 0; bit < covered(kReadFrame).size() * 8; ++bit) {
    auto frame = kReadFrame;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(icrc(kReadIp, covered(frame)) == stored_icrc(frame), bit / 8 == 4) << bit;
  }
}

TEST(Icrc, TheIdThatWasNotSeenIsFound) {
  UdpFrame unknown = kReadIp;
  unknown.ipv4_id = 0;
  const auto id = explain_by_ipv4_id(icrc(unknown, covered(kReadFrame)) ^ stored_icrc(kReadFrame), kReadFrame.size());
  ASSERT_TRUE(id);
  EXPECT_EQ(*id, 0xc410);

  std::mt19937 random(1);
  for (std::size_t size = 16; size <= 4200; size += 4) {
    std::vector<std::byte> frame(size);
    for (auto& byte : frame) byte = static_cast<std::byte>(random());
    UdpFrame sent{kFirst, kSecond, 0xc000, 4791, static_cast<std::uint16_t>(random()), size};
    const std::uint32_t stored = icrc(sent, covered(frame));
    const std::uint16_t truth = std::exchange(sent.ipv4_id, std::uint16_t{7});
    const auto found = explain_by_ipv4_id(icrc(sent, covered(frame)) ^ stored, size);
    ASSERT_TRUE(found) << size;
    EXPECT_EQ(*found ^ 7, truth) << size;
  }
}

TEST(Icrc, ADamagedFrameHasNoExplanation) {
  unsigned explained = 0;
  const std::uint32_t good = icrc(kReadIp, covered(kReadFrame));
  for (std::size_t bit = 0; bit < covered(kReadFrame).size() * 8; ++bit) {
    if (bit / 8 == 4) continue;
    auto frame = kReadFrame;
    frame[bit / 8] ^= std::byte{1} << (bit % 8);
    if (explain_by_ipv4_id(icrc(kReadIp, covered(frame)) ^ good, frame.size())) ++explained;
  }
  EXPECT_EQ(explained, 0U);
}

TEST(Icrc, OverIpv6TheWholeHeaderIsKnown) {
  Gid a;
  a.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  Gid b = a;
  b.bytes[15] = 2;
  UdpFrame frame{a, b, 0xc000, 4791, 0, kReadFrame.size()};
  const std::uint32_t value = icrc(frame, covered(kReadFrame));
  // The same by hand: pseudo LRH, IPv6 header, UDP header, BTH with its masked byte, the rest.
  std::vector<std::byte> whole(8, std::byte{0xff});
  const auto append = [&whole](std::vector<std::byte> more) { whole.insert(whole.end(), more.begin(), more.end()); };
  append(bytes(0x6f, 0xff, 0xff, 0xff, 0x00, 0x28, 0x11, 0xff));
  for (const Gid& gid : {a, b}) {
    for (const auto byte : gid.bytes) whole.push_back(std::byte{byte});
  }
  append(bytes(0xc0, 0x00, 0x12, 0xb7, 0x00, 0x28, 0xff, 0xff));
  const std::size_t bth = whole.size();
  append({covered(kReadFrame).begin(), covered(kReadFrame).end()});
  whole[bth + 4] = std::byte{0xff};
  EXPECT_EQ(value, crc32(whole));
}

TEST(Gid, AnIpv4AddressIsMapped) {
  EXPECT_EQ(to_string(kFirst), "10.9.0.1");
  EXPECT_TRUE(kFirst.is_ipv4());
  EXPECT_EQ(kFirst.ipv4(), 0x0a090001U);
  Gid link_local;
  link_local.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1};
  EXPECT_FALSE(link_local.is_ipv4());
}

}  // namespace
}  // namespace fairlead::soft
