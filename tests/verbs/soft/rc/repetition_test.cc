// Packets out of their turn: gaps, duplicates, and READs and atomics that are asked again.
#include "tests/verbs/soft/raw_peer.h"

namespace fairlead::soft::test {
namespace {

TEST(ResponderPsn, AGapIsReportedOnceAndTheRestDropped) {
  RawPeer peer;
  const auto write = [&](std::uint32_t offset, unsigned value) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + offset,
               .payload = RawPeer::payload(4, value),
               .reth = peer.target(4 * offset, 4)});
  };
  write(1, 1);
  peer.expect_answer(Syndrome::kNakSequence, peer.psn);
  write(2, 1);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(peer.untouched());
  write(0, 1);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  write(2, 1);
  peer.expect_answer(Syndrome::kNakSequence, peer.psn + 1);
  EXPECT_EQ(peer.device->counter("out_of_seq_request"), 3U);
}

TEST(ResponderPsn, ARepetitionThatLostItsFirstPacketIsReportedAgain) {
  RawPeer peer;
  const auto write = [&](std::uint32_t offset) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + offset,
               .payload = RawPeer::payload(4, 1),
               .reth = peer.target(0, 4)});
  };
  write(1);
  peer.expect_answer(Syndrome::kNakSequence, peer.psn);
  write(2);
  write(3);
  EXPECT_TRUE(peer.receive().empty());
  write(1);  // the PSNs go back: it is sent again, and 0 is missing again
  peer.expect_answer(Syndrome::kNakSequence, peer.psn);
  write(2);
  EXPECT_TRUE(peer.receive().empty());
}

TEST(ResponderPsn, ADuplicateIsAcknowledgedAndNotExecuted) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  packet.payload = RawPeer::payload(4, 9);
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  EXPECT_EQ(peer.device->buffer[0], 1);
  packet.psn = peer.psn - 0x8000;  // far behind
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  EXPECT_EQ(peer.device->buffer[0], 1);
  EXPECT_EQ(peer.device->counter("duplicate_request"), 2U);
}

// Linux rxe, answered in the middle of a message that it did not ask about, repeats the message with PSNs off by one.
TEST(ResponderPsn, ADuplicateIsAnsweredWithThePsnLastAskedAbout) {
  RawPeer peer;
  const auto first = [&](Psn psn) {
    return Forged{.opcode = Opcode::kWriteFirst,
                  .psn = psn,
                  .payload = RawPeer::payload(1024, 1),
                  .reth = peer.target(0, 4096),
                  .ack_request = false};
  };
  peer.send(
      {.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(8, 1), .reth = peer.target(0, 8)});
  peer.expect_answer(Syndrome::kAck, peer.psn);
  peer.send(first(peer.psn + 1));
  EXPECT_TRUE(peer.receive().empty());
  peer.send(first(peer.psn + 1));
  peer.expect_answer(Syndrome::kAck, peer.psn);
  peer.send({.opcode = Opcode::kWriteMiddle, .psn = peer.psn + 2, .payload = RawPeer::payload(1024, 2)});
  peer.expect_answer(Syndrome::kAck, peer.psn + 2);
  peer.send(first(peer.psn + 1));
  peer.expect_answer(Syndrome::kAck, peer.psn + 2);
}

TEST(ResponderPsn, DuplicateReadIsReplayed) {
  RawPeer peer;
  fill_pattern(peer.device->buffer, 3);
  const Forged request{.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = peer.target(7, 2500)};
  peer.send(request);
  const auto first = peer.receive();
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[0].opcode, Opcode::kReadResponseFirst);
  EXPECT_EQ(first[1].opcode, Opcode::kReadResponseMiddle);
  EXPECT_EQ(first[2].opcode, Opcode::kReadResponseLast);
  EXPECT_EQ(first[2].psn, peer.psn + 2);
  EXPECT_EQ(first[2].payload.size(), 452U);
  EXPECT_EQ(std::memcmp(first[0].payload.data(), &peer.device->buffer[7], 1024), 0);
  // Its tail alone, as a requester asks that lost the last response.
  peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn + 2, .reth = peer.target(7 + 2048, 452)});
  const auto again = peer.receive();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].opcode, Opcode::kReadResponseOnly);
  EXPECT_EQ(again[0].psn, peer.psn + 2);
  EXPECT_EQ(again[0].payload, first[2].payload);
  // More than was ever asked is no repetition.
  peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn + 2, .reth = peer.target(0, 4000)});
  EXPECT_TRUE(peer.receive().empty());
  // The next new request is expected behind all the responses.
  peer.send({.opcode = Opcode::kWriteOnly,
             .psn = peer.psn + 3,
             .payload = RawPeer::payload(4, 1),
             .reth = peer.target(0, 4)});
  peer.expect_answer(Syndrome::kAck, peer.psn + 3);
}

// Else whoever holds one connection could try keys: a wrong guess at a new READ ends it, one at an old READ would not.
TEST(ResponderPsn, ADuplicateReadReadsNothingThatWasNotAskedFor) {
  RawPeer peer({}, {.max_reads = 2});
  std::vector<std::uint8_t> secret(4096, 0x5a);
  ibv_mr* hidden = api().reg_mr(peer.device->pd, secret.data(), secret.size(), IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(hidden, nullptr);
  const Reth asked = peer.target(8, 3000);
  const auto answers = [&](std::uint32_t offset, const Reth& reth) {
    peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn + offset, .reth = reth});
    return peer.receive().size();
  };
  ASSERT_EQ(answers(0, asked), 3U);
  EXPECT_EQ(answers(0, asked), 3U);
  EXPECT_EQ(answers(1, {asked.address + 1024, asked.rkey, 1976}), 2U);
  EXPECT_EQ(answers(1, {asked.address + 1024, asked.rkey, 1024}), 1U);
  EXPECT_EQ(answers(0, {reinterpret_cast<std::uint64_t>(secret.data()), hidden->rkey, 3000}), 0U);
  EXPECT_EQ(answers(1, {reinterpret_cast<std::uint64_t>(secret.data()), hidden->rkey, 8}), 0U);
  EXPECT_EQ(answers(0, {asked.address, asked.rkey ^ 1, 3000}), 0U);
  EXPECT_EQ(answers(0, {asked.address + 1024, asked.rkey, 8}), 0U) << "the bytes of another packet";
  EXPECT_EQ(answers(1, {asked.address, asked.rkey, 8}), 0U) << "the bytes of another packet";
  EXPECT_EQ(answers(2, {asked.address + 2048, asked.rkey, 1024}), 0U) << "more than was asked for";
  EXPECT_EQ(answers(0, {asked.address, asked.rkey, 4000}), 0U) << "more than was asked for";
  peer.send({.opcode = Opcode::kFetchAdd, .psn = peer.psn, .atomic = {asked.address, asked.rkey, 1, 0}});
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->counter("drop_bogus"), 8U);
  // Two more, and the first is forgotten: the peer has its answer, or it had not asked them.
  ASSERT_EQ(answers(3, asked), 3U);
  ASSERT_EQ(answers(6, peer.target(0, 8)), 1U);
  EXPECT_EQ(answers(0, asked), 0U);
  EXPECT_EQ(answers(3, asked), 3U);
  // Of memory that is gone a repetition gets nothing, but it is no fault of the peer's either.
  ASSERT_EQ(api().dereg_mr(std::exchange(peer.device->mr, nullptr)), 0);
  EXPECT_EQ(answers(3, asked), 0U);
  EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
  EXPECT_EQ(api().dereg_mr(hidden), 0);
}

TEST(ResponderPsn, ARepetitionWhoseMemoryGoesMeanwhileIsGivenUp) {
  RawPeer peer({}, {.mtu = IBV_MTU_256, .max_reads = 2});
  constexpr std::uint32_t kPackets = 8192;
  const Reth asked = peer.target(0, kPackets * 256);
  const auto ask = [&] { peer.put({.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = asked}); };
  ask();
  std::size_t answered = 0;
  for (int i = 0; i < 100 && answered < kPackets; ++i) answered += peer.receive().size();
  ASSERT_EQ(answered, kPackets);
  ask();
  EXPECT_LT(peer.receive().size(), kPackets) << "a part of it";
  ASSERT_EQ(api().dereg_mr(std::exchange(peer.device->mr, nullptr)), 0);  // as the peer has the answer
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
  EXPECT_EQ(peer.device->counter("drop_bogus"), 1U);
}

// A requester that lost the tail of an answer may ask while the rest of it is still to be sent.
TEST(ResponderPsn, ARepetitionWithinAnAnswerUnderWayGoesBackOnlyIfItMust) {
  RawPeer peer({}, {.mtu = IBV_MTU_256, .max_reads = 2});
  fill_pattern(peer.device->buffer, 6);
  const Reth asked = peer.target(0, 8 * 256);
  const auto part = [&](std::uint32_t from) {
    return Forged{.opcode = Opcode::kReadRequest,
                  .psn = peer.psn + from,
                  .reth = {asked.address + 256 * from, asked.rkey, 256 * (8 - from)}};
  };
  peer.put(part(0));
  peer.put(part(3));
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 8U) << "each packet once: none had left when it was asked for again";
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(seen[i].psn, peer.psn + i);
    EXPECT_EQ(std::memcmp(seen[i].payload.data(), peer.device->buffer.data() + 256 * i, 256), 0);
  }
}

// A reply comes late, so its question is repeated; then it comes, and the next question follows the repetition at once.
class RepeatedQuestions : public testing::TestWithParam<unsigned> {};

TEST_P(RepeatedQuestions, DoNotTakeThePlaceOfNewOnes) {
  const unsigned limit = GetParam();
  enum class Kinds { kReads, kAtomics, kBoth };
  for (const Kinds kinds : {Kinds::kReads, Kinds::kAtomics, Kinds::kBoth}) {
    RawPeer peer({}, {.max_reads = static_cast<std::uint8_t>(limit)});
    fill_pattern(peer.device->buffer, 5);
    const std::vector<std::uint8_t> before = peer.device->buffer;
    const auto is_atomic = [&](std::uint32_t i) {
      return kinds == Kinds::kAtomics || (kinds == Kinds::kBoth && i % 2 == 1);
    };
    const auto ask = [&](std::uint32_t begin, std::uint32_t end) {
      for (std::uint32_t i = begin; i < end; ++i) {
        const Reth reth = peer.target(8 * i, 8);
        peer.put({.opcode = is_atomic(i) ? Opcode::kFetchAdd : Opcode::kReadRequest,
                  .psn = peer.psn + i,
                  .reth = reth,
                  .atomic = {reth.address, reth.rkey, 1, 0}});
      }
    };
    const auto word = [](const void* at) {
      std::uint64_t value = 0;
      std::memcpy(&value, at, sizeof(value));
      return value;
    };
    std::vector<int> answers(3 * limit, 0);
    const auto take = [&](const Seen& seen) {
      ASSERT_NE(seen.opcode, Opcode::kAcknowledge) << "refused with syndrome " << int{seen.aeth.syndrome};
      const auto i = static_cast<std::uint32_t>(seen.psn.since(peer.psn));
      ASSERT_LT(i, answers.size());
      ++answers[i];
      EXPECT_EQ(seen.opcode, is_atomic(i) ? Opcode::kAtomicAcknowledge : Opcode::kReadResponseOnly);
      EXPECT_EQ(is_atomic(i) ? seen.original : word(seen.payload.data()), word(&before[8 * i])) << i;
    };
    const auto take_answers = [&] {
      for (auto all = peer.receive(); !all.empty(); all = peer.receive()) std::ranges::for_each(all, take);
    };
    ask(0, limit);
    take_answers();
    ask(0, limit);
    ask(limit, 2 * limit);
    take_answers();
    ask(limit, 2 * limit);
    ask(limit + 1, 2 * limit);
    ask(2 * limit, 3 * limit);
    take_answers();
    EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
    for (std::uint32_t i = 0; i < 3 * limit; ++i) {
      EXPECT_GE(answers[i], 1) << i;
      EXPECT_EQ(word(&peer.device->buffer[8 * i]), word(&before[8 * i]) + (is_atomic(i) ? 1 : 0)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Limit, RepeatedQuestions, testing::Values(1, 2, 3, 7, 16, 128),
                         testing::PrintToStringParamName());

TEST(ResponderReads, MoreAtOnceThanWereAgreedOnAreInvalid) {
  for (const unsigned limit : {1u, 2u, 5u}) {
    RawPeer peer({}, {.max_reads = static_cast<std::uint8_t>(limit)});
    for (unsigned i = 0; i <= limit; ++i) {
      peer.put({.opcode = Opcode::kReadRequest, .psn = peer.psn + i, .reth = peer.target(0, 8)});
    }
    const auto seen = peer.receive();
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back().opcode, Opcode::kAcknowledge);
    EXPECT_EQ(seen.back().aeth.syndrome, static_cast<std::uint8_t>(Syndrome::kNakInvalidRequest));
    EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  }
}

TEST(ResponderReads, MoreThanWereAgreedOnAreInvalid) {
  RawPeer peer({}, {.max_reads = 0});
  peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = peer.target(0, 8)});
  peer.expect_answer(Syndrome::kNakInvalidRequest, peer.psn);
}

}  // namespace
}  // namespace fairlead::soft::test
