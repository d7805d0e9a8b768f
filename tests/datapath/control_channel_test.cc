#include "datapath/control_channel.h"

#include <gtest/gtest.h>

#include "datapath/path_messages.h"

namespace fairlead::datapath {
namespace {

std::string framed(const control::Frame& frame) {
  std::string body = frame.SerializeAsString();
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(size >> shift));
  return bytes + body;
}

TEST(FrameReader, SplitsAStreamWhereverItIsCut) {
  control::Frame frame;
  frame.mutable_ping()->set_nonce(42);
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
        EXPECT_EQ(got.ping().nonce(), 42u);
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
  header[0] = std::byte{9};
  EXPECT_FALSE(decode(header));
  header[0] = std::byte{1};
  header[1] = std::byte{200};
  EXPECT_FALSE(decode(header));
}

}  // namespace
}  // namespace fairlead::datapath
