#include "datapath/session/control_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "datapath/protocol/path_messages.h"
#include "datapath/session/control_socket.h"
#include "tests/datapath/framed.h"

namespace fairlead::datapath {
namespace {

TEST(FrameReader, SplitsAStreamWhereverItIsCut) {
  const control::Frame frame = control::Ping{.nonce = 42};
  const std::string stream = "FAIRLEAD" + framed(frame) + framed(frame);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameReader reader;
    control::Frame got;
    int frames = 0;
    for (const std::string& part : {stream.substr(0, cut), stream.substr(cut)}) {
      reader.append(part.data(), part.size());
      while (true) {
        const Result<bool> next = reader.next(got);
        ASSERT_TRUE(next) << cut;
        if (!*next) break;
        EXPECT_EQ(std::get<control::Ping>(got).nonce, 42u);
        ++frames;
      }
    }
    EXPECT_EQ(frames, 2) << cut;
  }
}

TEST(FrameReader, NamesWhatIsNotAPeer) {
  FrameReader reader;
  control::Frame frame;
  const std::string http = "GET / HTTP/1.1\r\n";
  reader.append(http.data(), http.size());
  const Result<bool> next = reader.next(frame);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code(), Code::kVersionMismatch);
  EXPECT_NE(next.error().message().find("GET / HTTP/1.1"), std::string::npos) << next.error().message();
}

TEST(FrameReader, RefusesLongAndMalformedFrames) {
  control::Frame frame;
  FrameReader longer;
  const std::string too_long("FAIRLEAD\x01\x00\x10\x00", 12);  // 2^20 + 1
  longer.append(too_long.data(), too_long.size());
  EXPECT_FALSE(longer.next(frame));
  FrameReader malformed;
  const std::string bad("FAIRLEAD\x02\x00\x00\x00\xff\xff", 14);
  malformed.append(bad.data(), bad.size());
  EXPECT_FALSE(malformed.next(frame));
}

// However the stream is cut, here always where a frame ends.
TEST(FrameReader, KeepsNothingThatItHasHandedOver) {
  FrameReader reader;
  control::Frame frame = control::Ping{.nonce = 42};
  const std::string bytes = framed(frame);
  reader.append("FAIRLEAD", 8);
  for (int i = 0; i < 10'000; ++i) {
    reader.append(bytes.data(), bytes.size());
    Result<bool> next = reader.next(frame);
    ASSERT_TRUE(next && *next);
    next = reader.next(frame);
    ASSERT_TRUE(next && !*next);
    ASSERT_LE(reader.held(), bytes.size());
  }
}

/// A channel, and the other end of its socket.
struct Ends {
  Ends() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    other.reset(fds[0]);
    channel.emplace(make_control_stream(UniqueFd(fds[1])), false);
  }
  UniqueFd other;
  std::optional<ControlChannel> channel;
};

control::Frame frame_of(std::size_t bytes) {
  control::Lookup lookup;
  lookup.name.assign(bytes, 'x');
  return lookup;
}

TEST(ControlChannel, ATurnTakesABoundedNumberOfFrames) {
  constexpr std::size_t kFrames = 5000;
  Ends ends;
  const control::Frame ping = control::Ping{.nonce = 1};
  std::string bytes = "FAIRLEAD";
  for (std::size_t i = 0; i < kFrames; ++i) bytes += framed(ping);
  ASSERT_EQ(::send(ends.other.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  std::size_t frames = 0, turns = 0;
  while (frames < kFrames && turns < 2 * kFrames) {
    const std::size_t before = frames;
    ASSERT_TRUE(ends.channel->read([&](const control::Frame&) { return ++frames != 0; }).ok());
    EXPECT_LE(frames - before, ControlChannel::kTurnFrames);
    ++turns;
  }
  EXPECT_EQ(frames, kFrames);
  EXPECT_FALSE(ends.channel->pending());
}

TEST(ControlChannel, WhoHasHeardEnoughHearsTheRestLater) {
  Ends ends;
  const control::Frame ping = control::Ping{.nonce = 1};
  const std::string bytes = "FAIRLEAD" + framed(ping) + framed(ping);
  ASSERT_GT(::send(ends.other.get(), bytes.data(), bytes.size(), 0), 0);
  std::size_t frames = 0;
  const auto hear_one = [&](const control::Frame&) { return ++frames == 0; };
  ASSERT_TRUE(ends.channel->read(hear_one).ok());
  EXPECT_EQ(frames, 1u);
  EXPECT_TRUE(ends.channel->pending());
  ASSERT_TRUE(ends.channel->read(hear_one).ok());
  EXPECT_EQ(frames, 2u);
}

TEST(ControlChannel, WhatWasSentIsNotKept) {
  Ends ends;
  std::vector<char> sink(100'000);
  const control::Frame frame = frame_of(64 << 10);
  while (ends.channel->queued() < (std::size_t{1} << 20)) ASSERT_TRUE(ends.channel->send(to_wire(frame)).ok());
  for (int i = 0; i < 500; ++i) {  // it is never empty again
    while (ends.channel->queued() >= (std::size_t{1} << 20)) {
      ASSERT_GT(::recv(ends.other.get(), sink.data(), sink.size(), 0), 0);
      ASSERT_TRUE(ends.channel->flush().ok());
    }
    ASSERT_TRUE(ends.channel->send(to_wire(frame)).ok());
    ASSERT_LE(ends.channel->held(), std::size_t{4} << 20);
  }
}

TEST(ControlChannel, WhoReadsNothingIsNotReadAndThenGivenUp) {
  Ends ends;
  const control::Frame frame = frame_of(64 << 10);
  while (ends.channel->queued() <= ControlChannel::kReadMark) ASSERT_TRUE(ends.channel->send(to_wire(frame)).ok());
  const control::Frame ping = control::Ping{.nonce = 1};
  const std::string bytes = "FAIRLEAD" + framed(ping);
  ASSERT_GT(::send(ends.other.get(), bytes.data(), bytes.size(), 0), 0);
  std::size_t frames = 0;
  const auto count = [&](const control::Frame&) { return ++frames != 0; };
  ASSERT_TRUE(ends.channel->read(count).ok());
  EXPECT_EQ(frames, 0u);
  std::vector<char> sink(1 << 20);
  while (!ends.channel->wants_read()) {
    ASSERT_GT(::recv(ends.other.get(), sink.data(), sink.size(), 0), 0);
    ASSERT_TRUE(ends.channel->flush().ok());
  }
  ASSERT_TRUE(ends.channel->read(count).ok());
  EXPECT_EQ(frames, 1u);
  Status sent;
  for (int i = 0; i < 1000 && sent.ok(); ++i) sent = ends.channel->send(to_wire(frame));
  EXPECT_EQ(sent.code(), Code::kResourceExhausted);
  EXPECT_NE(sent.message().find("the limit is 16777216"), std::string::npos) << sent.message();
  EXPECT_EQ(ends.channel->held(), 0u);
  EXPECT_EQ(ends.channel->send(to_wire(frame)).code(), Code::kResourceExhausted);
}

TEST(PathMessages, RoundTripAndRefusal) {
  PathMessage message;
  message.type = MessageType::kStagedReadRequest;
  message.code = Code::kProtectionError;
  message.stripes = 3;
  message.length = 0x01020304;
  message.sequence = 0x1122334455667788;
  message.value = UINT64_MAX;
  message.offset = 5;
  message.total = 6;
  PathHeader header;
  encode(message, header);
  const std::optional<PathMessage> back = decode(header);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->type, message.type);
  EXPECT_EQ(back->code, message.code);
  EXPECT_EQ(back->stripes, 3);
  EXPECT_EQ(back->length, message.length);
  EXPECT_EQ(back->sequence, message.sequence);
  EXPECT_EQ(back->value, message.value);
  EXPECT_EQ(back->offset, 5u);
  EXPECT_EQ(back->total, 6u);
  EXPECT_TRUE(back->data.empty());
  EXPECT_EQ(header[0], std::byte{6});
  EXPECT_EQ(header[8], std::byte{0x88});  // little-endian
  EXPECT_FALSE(decode(std::span(header).first(kPathHeaderBytes - 1)));
  header[0] = std::byte{12};
  EXPECT_FALSE(decode(header));
  header[0] = std::byte{1};
  header[1] = std::byte{200};
  EXPECT_FALSE(decode(header));
}

}  // namespace
}  // namespace fairlead::datapath
