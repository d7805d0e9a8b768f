// Control messages of memif as other implementations have them, byte for byte.
#include "verbs/soft/port/memif/messages.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fairlead::soft::memif {
namespace {

std::vector<unsigned> bytes_at(const Message& message, std::size_t from, std::size_t count) {
  const auto bytes = encode(message);
  std::vector<unsigned> made;
  for (const std::byte each : std::span(bytes).subspan(from, count)) made.push_back(static_cast<unsigned>(each));
  return made;
}
using Bytes = std::vector<unsigned>;

TEST(MemifMessages, FieldsStandWhereOthersHaveThem) {
  EXPECT_EQ(bytes_at(Ack{}, 0, 4), (Bytes{1, 0, 0, 0}));
  const Hello hello{"vpp", 0x0200, 0x0201, 0x0102, 0x0304, 0x0506, 14};
  EXPECT_EQ(bytes_at(hello, 0, 6), (Bytes{2, 0, 'v', 'p', 'p', 0}));
  EXPECT_EQ(bytes_at(hello, 34, 12), (Bytes{0, 2, 1, 2, 2, 1, 4, 3, 6, 5, 14, 0}));
  const Init init{0x0200, 0x01020304, 0, "secret", "dpdk"};
  EXPECT_EQ(bytes_at(init, 0, 15), (Bytes{3, 0, 0, 2, 4, 3, 2, 1, 0, 's', 'e', 'c', 'r', 'e', 't'}));
  EXPECT_EQ(bytes_at(init, 33, 5), (Bytes{'d', 'p', 'd', 'k', 0}));
  EXPECT_EQ(bytes_at(AddRegion{1, 0x0102030405060708}, 0, 12), (Bytes{4, 0, 1, 0, 8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(bytes_at(AddRing{Direction::kToMaster, 2, 3, 0x0a0b0c0d, 10, 0x1112}, 0, 15),
            (Bytes{5, 0, 1, 0, 2, 0, 3, 0, 0xd, 0xc, 0xb, 0xa, 10, 0x12, 0x11}));
  EXPECT_EQ(bytes_at(AddRing{Direction::kToSlave, 0, 0, 0, 0, 0}, 2, 2), (Bytes{0, 0}));
  EXPECT_EQ(bytes_at(Connect{"if0"}, 0, 6), (Bytes{6, 0, 'i', 'f', '0', 0}));
  EXPECT_EQ(bytes_at(Connected{"if1"}, 0, 6), (Bytes{7, 0, 'i', 'f', '1', 0}));
  EXPECT_EQ(bytes_at(Disconnect{7, "why"}, 0, 10), (Bytes{8, 0, 7, 0, 0, 0, 'w', 'h', 'y', 0}));
}

TEST(MemifMessages, WhatIsWrittenIsReadAgain) {
  const Message all[] = {Ack{},
                         Hello{"a", 1, 2, 3, 4, 5, 6},
                         Init{1, 2, 3, std::string(kMostSecretBytes, 's'), "b"},
                         AddRegion{1, 2},
                         AddRing{Direction::kToMaster, 1, 2, 3, 4, 5},
                         AddRing{Direction::kToSlave, 1, 2, 3, 4, 5},
                         Connect{"c"},
                         Connected{"d"},
                         Disconnect{1, std::string(kMostReasonBytes, 'r')}};
  for (const Message& message : all) {
    const auto bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
  }
}

TEST(MemifMessages, TextsOfEveryLengthEnd) {
  const auto back = decode(encode(Connect{std::string(100, 'x')}));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<Connect>(*back).interface_name, std::string(kMostNameBytes, 'x'));
  std::array<std::byte, kMessageBytes> endless = encode(Connect{});
  std::memset(&endless[2], 'y', endless.size() - 2);
  EXPECT_EQ(std::get<Connect>(*decode(endless)).interface_name.size(), kMostNameBytes + 1);
}

TEST(MemifMessages, OtherBytesAreNone) {
  std::array<std::byte, kMessageBytes + 1> bytes{};
  EXPECT_FALSE(decode(std::span(bytes).first(0)));
  EXPECT_FALSE(decode(std::span(bytes).first(kMessageBytes)));  // type 0
  bytes[0] = std::byte{1};
  EXPECT_TRUE(decode(std::span(bytes).first(kMessageBytes)));
  EXPECT_FALSE(decode(std::span(bytes).first(kMessageBytes - 1)));
  EXPECT_FALSE(decode(bytes));
  bytes[0] = std::byte{9};
  EXPECT_FALSE(decode(std::span(bytes).first(kMessageBytes)));
  bytes[1] = bytes[0] = std::byte{1};
  EXPECT_FALSE(decode(std::span(bytes).first(kMessageBytes)));
}

}  // namespace
}  // namespace fairlead::soft::memif
