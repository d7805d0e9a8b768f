// What a hostile or broken peer can send.
#include "tcp_fallback/receiver.h"

#include <gtest/gtest.h>

#include "tests/tcp_fallback/protocol_end.h"

namespace fairlead::tcp_fallback {
namespace {

using datapath::OpKind;

class ReceiverTest : public testing::Test {
 protected:
  ReceiverTest() { pipe_.chunk = 1'000'000; }

  void feed(const Frame& frame, std::size_t payload = 0) {
    HeaderBytes header;
    encode(frame, header);
    auto& bytes = pipe_.bytes[1];
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), payload, std::byte{0xab});
  }
  // Lets the end read all that was fed.
  Receiver::Outcome read() {
    Receiver::Outcome outcome;
    do {
      outcome = end_.receiver.advance(end_.stream, end_);
    } while (outcome.end == Receiver::End::kNone && outcome.bytes > 0);
    return outcome;
  }
  void expect_malformed(std::string_view reason) {
    const Receiver::Outcome outcome = read();
    EXPECT_EQ(outcome.end, Receiver::End::kMalformed);
    EXPECT_EQ(outcome.reason, reason);
  }
  // A request of ours that is on its way.
  void post_and_send(OpKind kind, std::span<std::byte> bytes) {
    ASSERT_TRUE(end_.post(kind, bytes));
    end_.sender.flush(end_.stream);
  }

  Pipe pipe_;
  ProtocolEnd end_{pipe_, 0};
  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
};

TEST_F(ReceiverTest, Noise) {
  for (int i = 0; i < 100; ++i) pipe_.bytes[1].push_back(static_cast<std::byte>(i * 37 + 99));
  expect_malformed("unknown frame type");
}

TEST_F(ReceiverTest, RequestsOutOfSequence) {
  feed({.type = FrameType::kMessage, .seq = 1});
  expect_malformed("a message out of sequence");
}

TEST_F(ReceiverTest, WriteOutOfSequence) {
  feed({.type = FrameType::kWrite, .seq = 9, .length = 1}, 1);
  expect_malformed("a write out of sequence");
}

TEST_F(ReceiverTest, ReadOutOfSequence) {
  feed({.type = FrameType::kRead, .seq = 9, .length = 1});
  expect_malformed("a read out of sequence");
}

TEST_F(ReceiverTest, MessageInsideAWrite) {
  feed({.type = FrameType::kWrite, .last = false, .length = 8}, 8);
  feed({.type = FrameType::kMessage});
  expect_malformed("a message out of sequence");
}

TEST_F(ReceiverTest, AcknowledgementOfNothing) {
  feed({.type = FrameType::kAck});
  expect_malformed("an acknowledgement of nothing that was sent");
}

TEST_F(ReceiverTest, AcknowledgementOfWhatWasNotSentYet) {
  ASSERT_TRUE(end_.post(OpKind::kMessage, memory_));
  feed({.type = FrameType::kAck, .seq = 0});
  expect_malformed("an acknowledgement of nothing that was sent");
  EXPECT_TRUE(end_.completions.empty());
}

TEST_F(ReceiverTest, AcknowledgedReadWithoutItsData) {
  post_and_send(OpKind::kRead, memory_);
  feed({.type = FrameType::kReadData, .seq = 0, .length = 999}, 999);
  feed({.type = FrameType::kAck, .seq = 0});
  expect_malformed("an acknowledged read without its data");
  EXPECT_TRUE(end_.completions.empty());
}

TEST_F(ReceiverTest, ReadDataBeyondTheRead) {
  post_and_send(OpKind::kRead, std::span(memory_).first(10));
  feed({.type = FrameType::kReadData, .seq = 0, .length = 11}, 11);
  expect_malformed("read data out of sequence");
  EXPECT_EQ(memory_[0], std::byte{0});
}

TEST_F(ReceiverTest, ReadDataAtAnotherPlace) {
  post_and_send(OpKind::kRead, memory_);
  feed({.type = FrameType::kReadData, .seq = 0, .address = 10, .length = 11}, 11);
  expect_malformed("read data out of sequence");
}

TEST_F(ReceiverTest, ReadDataOfAWrite) {
  post_and_send(OpKind::kWrite, memory_);
  feed({.type = FrameType::kReadData, .seq = 0, .length = 1}, 1);
  expect_malformed("data of a request that is no read");
}

TEST_F(ReceiverTest, ReadDataOfNothing) {
  feed({.type = FrameType::kReadData, .seq = 3, .length = 1}, 1);
  expect_malformed("data of a read that was not asked for");
}

TEST_F(ReceiverTest, AMessageThatKnowsTooMuch) {
  feed({.type = FrameType::kMessage, .key = 1});
  expect_malformed("a message that knows of refusals that never were");
}

TEST_F(ReceiverTest, AnUndeliverableMessage) {
  feed({.type = FrameType::kMessage, .key = kUndeliverable, .length = 5}, 5);
  EXPECT_EQ(read().end, Receiver::End::kNone);
  EXPECT_TRUE(end_.messages.empty());
}

// What is neither ok nor the request's own kind of refusal would leave it neither done nor failed.
TEST_F(ReceiverTest, ARefusalThatARequestCannotHave) {
  const std::pair<OpKind, Code> refusals[] = {{OpKind::kWrite, Code::kAborted},
                                              {OpKind::kWrite, Code::kUnavailable},
                                              {OpKind::kRead, Code::kAborted},
                                              {OpKind::kMessage, Code::kProtectionError},
                                              {OpKind::kMessage, Code::kAborted}};
  for (const auto& [kind, code] : refusals) {
    Pipe pipe;
    pipe.chunk = 1'000'000;
    ProtocolEnd end(pipe, 0);
    ASSERT_TRUE(end.post(kind, std::span(memory_).first(10)));
    end.sender.flush(end.stream);
    HeaderBytes header;
    encode(Frame{.type = FrameType::kAck, .code = code, .seq = 0}, header);
    pipe.bytes[1].insert(pipe.bytes[1].end(), header.begin(), header.end());
    const Receiver::Outcome outcome = end.receiver.advance(end.stream, end);
    EXPECT_EQ(outcome.end, Receiver::End::kMalformed) << to_string(code);
    EXPECT_EQ(outcome.reason, "an acknowledgement with a code that its request cannot end with");
    EXPECT_TRUE(end.completions.empty());
  }
}

TEST_F(ReceiverTest, EndlessReadsAreCutOff) {
  const auto key = end_.grants.grant(memory_, Access::kRemoteRead).key;
  for (std::uint32_t i = 0; i < 3 * ProtocolEnd::kDepth; ++i)
    feed({.type = FrameType::kRead, .seq = i, .key = key, .length = 1000});
  expect_malformed("more requests than the announced depth");
}

TEST_F(ReceiverTest, EndlessRefusalsAreCutOff) {
  for (std::uint32_t i = 0; i < 3 * ProtocolEnd::kDepth; ++i)
    feed({.type = FrameType::kWrite, .seq = i, .length = 1}, 1);
  expect_malformed("more requests than the announced depth");
}

TEST_F(ReceiverTest, AcknowledgementsAreMerged) {
  const auto key = end_.grants.grant(memory_, Access::kRemoteWrite).key;
  for (std::uint32_t i = 0; i < 1000; ++i) feed({.type = FrameType::kWrite, .seq = i, .key = key, .length = 8}, 8);
  EXPECT_EQ(read().end, Receiver::End::kNone);
  EXPECT_EQ(end_.sender.responses(), 1u);
  EXPECT_EQ(memory_[7], std::byte{0xab});
  EXPECT_EQ(memory_[8], std::byte{0});
}

TEST_F(ReceiverTest, EndOfStreamComesAfterWhatArrivedBefore) {
  feed({.type = FrameType::kMessage, .length = 5}, 5);
  end_.stream.closed = true;
  EXPECT_EQ(read().end, Receiver::End::kClosed);
  EXPECT_EQ(end_.messages.size(), 1u);
}

TEST_F(ReceiverTest, AStoppedReceiverDeliversNothing) {
  feed({.type = FrameType::kMessage, .length = 5}, 5);
  end_.receiver.stop();
  EXPECT_EQ(read().bytes, 0u);
  EXPECT_TRUE(end_.messages.empty());
}

TEST_F(ReceiverTest, AHalfMessageWaits) {
  feed({.type = FrameType::kMessage, .length = 5}, 3);
  EXPECT_EQ(read().end, Receiver::End::kNone);
  EXPECT_TRUE(end_.messages.empty());
  for (int i = 0; i < 2; ++i) pipe_.bytes[1].push_back(std::byte{1});
  EXPECT_EQ(read().end, Receiver::End::kNone);
  EXPECT_EQ(end_.messages.size(), 1u);
}

}  // namespace
}  // namespace fairlead::tcp_fallback
