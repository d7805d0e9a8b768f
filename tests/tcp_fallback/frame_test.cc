#include "tcp_fallback/frame.h"

#include <gtest/gtest.h>

#include <set>

namespace fairlead::tcp_fallback {
namespace {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte each : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<int>(each) >> 4];
    text += kDigits[static_cast<int>(each) & 15];
  }
  return text;
}

std::string_view decode_after(const std::function<void(HeaderBytes&)>& spoil,
                              Frame frame = {.type = FrameType::kWrite}) {
  HeaderBytes bytes;
  encode(frame, bytes);
  spoil(bytes);
  return decode(std::span<const std::byte, kHeaderBytes>(bytes), frame);
}

TEST(Frame, BytesOnTheWire) {
  HeaderBytes bytes;
  encode({.type = FrameType::kWrite,
          .last = true,
          .seq = 0x01020304,
          .key = 0x1112131415161718,
          .address = 0x2122232425262728,
          .length = 0x1000},
         bytes);
  EXPECT_EQ(hex(bytes),
            "0101000004030201"
            "1817161514131211"
            "2827262524232221"
            "0010000000000000");
  encode({.type = FrameType::kAck, .code = Code::kProtectionError, .seq = 5}, bytes);
  EXPECT_EQ(hex(bytes),
            "0501060005000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
}

TEST(Frame, ComesBack) {
  for (const Frame& frame : {Frame{FrameType::kWrite, false, Code::kOk, 7, 8, 9, kMaxFragment},
                             Frame{FrameType::kRead, true, Code::kOk, 1, 2, 3, kMaxRead},
                             Frame{FrameType::kMessage, true, Code::kOk, 1, 0, 0, kMaxMessage},
                             Frame{FrameType::kReadData, true, Code::kOk, 4, 0, 5, 0},
                             Frame{FrameType::kAck, true, Code::kInternal, 0xffffffff, 0, 0, 0}}) {
    HeaderBytes bytes;
    encode(frame, bytes);
    Frame back;
    EXPECT_EQ(decode(std::span<const std::byte, kHeaderBytes>(bytes), back), "");
    EXPECT_EQ(back.type, frame.type);
    EXPECT_EQ(back.last, frame.last);
    EXPECT_EQ(back.code, frame.code);
    EXPECT_EQ(back.seq, frame.seq);
    EXPECT_EQ(back.key, frame.key);
    EXPECT_EQ(back.address, frame.address);
    EXPECT_EQ(back.length, frame.length);
    EXPECT_EQ(payload_bytes(back), frame.type == FrameType::kRead ? 0 : frame.length);
  }
}

TEST(Frame, RefusesWhatIsNotLegal) {
  EXPECT_EQ(decode_after([](HeaderBytes&) {}), "");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[0] = std::byte{0}; }), "unknown frame type");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[0] = std::byte{6}; }), "unknown frame type");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[1] = std::byte{3}; }), "unknown flags");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[3] = std::byte{1}; }), "unknown flags");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[2] = std::byte{1}; }), "a code outside an acknowledgement");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[2] = std::byte{200}; }, {.type = FrameType::kAck}), "unknown code");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[1] = std::byte{0}; }, {.type = FrameType::kAck}),
            "a frame that cannot be cut");
  EXPECT_EQ(decode_after([](HeaderBytes& b) { b[1] = std::byte{0}; }), "an empty fragment");
  for (const auto& [type, limit] :
       {std::pair(FrameType::kWrite, kMaxFragment), std::pair(FrameType::kReadData, kMaxFragment),
        std::pair(FrameType::kMessage, kMaxMessage), std::pair(FrameType::kRead, kMaxRead),
        std::pair(FrameType::kAck, std::uint64_t{0})}) {
    EXPECT_EQ(decode_after([](HeaderBytes&) {}, {.type = type, .length = limit + 1}), "a length beyond its limit");
  }
}

TEST(Greeting, ComesBackOrSaysWhyNot) {
  GreetingBytes bytes;
  const Token token = random_token();
  const auto read = [&] {
    Greeting greeting;
    return decode(std::span<const std::byte, kGreetingBytes>(bytes), greeting);
  };
  encode(Greeting{token, 256}, bytes);
  Greeting greeting;
  EXPECT_EQ(decode(std::span<const std::byte, kGreetingBytes>(bytes), greeting), "");
  EXPECT_TRUE(equal(greeting.token, token));
  EXPECT_EQ(greeting.depth, 256u);
  EXPECT_FALSE(greeting.keeps_lower);
  encode(Greeting{token, 256, true}, bytes);
  EXPECT_EQ(decode(std::span<const std::byte, kGreetingBytes>(bytes), greeting), "");
  EXPECT_EQ(hex(std::span(bytes).last(8)), "0001000001000000");
  EXPECT_TRUE(greeting.keeps_lower);
  bytes[4] = std::byte{2};
  EXPECT_EQ(read(), "another protocol version");
  bytes[0] = std::byte{'G'};
  EXPECT_EQ(read(), "not a Fairlead data connection");
  for (std::uint32_t depth : {0u, kMaxDepth + 1}) {
    encode(Greeting{token, depth}, bytes);
    EXPECT_EQ(read(), "a queue depth beyond its limit");
  }
}

TEST(Token, AreNeverTheSame) {
  std::set<Token> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_token());
  EXPECT_EQ(seen.size(), 1000u);
  Token one = random_token(), other = one;
  EXPECT_TRUE(equal(one, other));
  other[15] ^= std::byte{1};
  EXPECT_FALSE(equal(one, other));
}

TEST(Description, ComesBackOrSaysWhyNot) {
  const Description description{4711, random_token()};
  const std::string bytes = encode(description);
  const auto back = decode_description(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->port, 4711);
  EXPECT_TRUE(equal(back->token, description.token));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_description(std::string_view(bytes).substr(0, length)).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(decode_description(bytes + "x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(decode_description("\x02" + bytes.substr(1)).status().code(), Code::kVersionMismatch);
  EXPECT_EQ(decode_description(encode(Description{0, random_token()})).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
