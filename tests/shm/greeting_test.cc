#include "shm/meeting/greeting.h"

#include <gtest/gtest.h>

namespace fairlead::shm {
namespace {

TEST(ShmDescription, IsWhatItWas) {
  const Description given{.place = 0x1122334455667788, .socket = 0x99aabbccddeeff00, .token = random_token()};
  const std::string bytes = encode(given);
  ASSERT_EQ(bytes.size(), 42u);
  EXPECT_EQ(static_cast<unsigned char>(bytes[2]), 0x88) << "the least byte first";
  const auto read = decode_description(bytes);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->place, given.place);
  EXPECT_EQ(read->socket, given.socket);
  EXPECT_TRUE(equal(read->token, given.token));
}

TEST(ShmDescription, AnotherVersionSizeOrFillingIsRefused) {
  const std::string good = encode(Description{});
  std::string other = good;
  other[0] = kProtocolVersion + 1;
  EXPECT_EQ(decode_description(other).status().code(), Code::kVersionMismatch);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(decode_description(good.substr(0, size)).status().code(), Code::kInvalidArgument) << size;
  }
  EXPECT_EQ(decode_description(good + "x").status().code(), Code::kInvalidArgument);
  for (const std::size_t zero : {std::size_t{1}, std::size_t{34}, std::size_t{41}}) {
    std::string filled = good;
    filled[zero] = 1;
    EXPECT_EQ(decode_description(filled).status().code(), Code::kInvalidArgument) << zero;
  }
}

TEST(ShmGreeting, IsWhatItWas) {
  const Greeting given{.token = random_token(), .own = random_token(), .own_address = 0x123456789abcdef0};
  GreetingBytes bytes;
  encode(given, bytes);
  Greeting read;
  ASSERT_EQ(decode(bytes, read), "");
  EXPECT_TRUE(equal(read.token, given.token));
  EXPECT_TRUE(equal(read.own, given.own));
  EXPECT_EQ(read.own_address, given.own_address);
}

TEST(ShmGreeting, EveryOtherHeaderIsRefused) {
  GreetingBytes bytes;
  encode(Greeting{}, bytes);
  Greeting read;
  for (std::size_t at = 0; at < 8; ++at) {
    GreetingBytes changed = bytes;
    changed[at] ^= std::byte{1};
    EXPECT_NE(decode(changed, read), "") << at;
  }
  EXPECT_NE(decode(std::span(bytes).first(47), read), "");
  EXPECT_NE(decode({}, read), "");
}

}  // namespace
}  // namespace fairlead::shm
