#include <poll.h>

#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

bool untouched(const Endpoint& endpoint) {
  return std::all_of(endpoint.buffer.begin(), endpoint.buffer.end(), [](auto byte) { return byte == 0; });
}

TEST(ResponderWrite, PlacesTheBytesAndAcknowledges) {
  RawPeer peer;
  peer.send({.opcode = Opcode::kWriteFirst,
             .psn = peer.psn,
             .payload = RawPeer::payload(1024, 1),
             .reth = peer.target(10, 1030),
             .ack_request = false});
  EXPECT_TRUE(peer.receive().empty());
  peer.send({.opcode = Opcode::kWriteLast, .psn = peer.psn + 1, .payload = RawPeer::payload(6, 2)});
  peer.expect_answer(Syndrome::kAck, peer.psn + 1);
  EXPECT_EQ(peer.device->buffer[9], 0);
  EXPECT_EQ(peer.device->buffer[10], 1);
  EXPECT_EQ(peer.device->buffer[1033], 1);
  EXPECT_EQ(peer.device->buffer[1034], 2);
  EXPECT_EQ(peer.device->buffer[1039], 2);
  EXPECT_EQ(peer.device->buffer[1040], 0);
  EXPECT_TRUE(peer.device->done.empty());
}

// A conversation: each WRITE of the peer is answered by one of the device's own.
TEST(ResponderWrite, HoldsTheAcknowledgementForTheAnswer) {
  RawPeer peer;
  Psn own = peer.psn;
  const auto ask = [&](unsigned turn) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + turn,
               .payload = RawPeer::payload(8, turn),
               .reth = peer.target(0, 8)});
  };
  const auto answer = [&] {
    EXPECT_EQ(peer.device->post(IBV_WR_SEND, 0, 100, 8, nullptr, 0), 0);
    const auto seen = peer.receive();
    peer.send({.opcode = Opcode::kAcknowledge, .psn = own});
    ++own;
    return seen;
  };
  for (unsigned turn = 0; turn < 4; ++turn) {
    ask(turn);
    ASSERT_EQ(peer.receive().size(), 1U) << "an acknowledgement at once, in turn " << turn;
    answer();
  }
  ask(4);
  EXPECT_TRUE(peer.receive().empty());
  // The peer's message completes before it receives the answer.
  const auto both = answer();
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(both[0].psn, peer.psn + 4);
  EXPECT_EQ(both[1].opcode, Opcode::kSendOnly);

  // It does not answer any more: the acknowledgement leaves all the same, and the next one at once.
  ask(5);
  EXPECT_TRUE(peer.receive().empty());
  ASSERT_EQ(peer.receive_after(20 * kMicrosecond).size(), 1U);
  ask(6);
  EXPECT_EQ(peer.receive().size(), 1U);
}

// A conversation of which the device holds back the acknowledgement of peer.psn + 4.
void hold_an_acknowledgement(RawPeer& peer) {
  Psn own = peer.psn;
  for (unsigned turn = 0; turn < 5; ++turn) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + turn,
               .payload = RawPeer::payload(8, turn),
               .reth = peer.target(0, 8)});
    peer.receive();
    if (turn == 4) break;
    ASSERT_EQ(peer.device->post(IBV_WR_SEND, 0, 100, 8, nullptr, 0), 0);
    peer.receive();
    peer.send({.opcode = Opcode::kAcknowledge, .psn = own});
    ++own;
  }
}

TEST(ResponderWrite, AHeldAcknowledgementLeavesBeforeTheQueuePairDoes) {
  RawPeer peer;
  hold_an_acknowledgement(peer);
  ASSERT_EQ(peer.device->to_state(IBV_QPS_ERR), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(seen[0].psn, peer.psn + 4);
}

// DCQCN keeps the answer to the READ back. A sanitizer sees here if a timer outlives the queue pair.
TEST(ResponderWrite, AHeldAcknowledgementLeavesBeforeASlowedQueuePairIsDestroyed) {
  RawPeer peer;
  ibv_qp* other = peer.device->make_qp({});  // so that the device lives on
  hold_an_acknowledgement(peer);
  Qp& qp = impl(peer.device->qp);
  ASSERT_TRUE(qp.held.linked());
  qp.congestion = std::make_unique<CongestionControl>(DcqcnConfig{.increase_bytes = 1ULL << 40});
  qp.congestion->reaction.on_notification(peer.clock.now());
  qp.congestion->reaction.on_sent(1 << 30, peer.clock.now());
  peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn + 5, .reth = peer.target(0, 2048)});
  EXPECT_TRUE(peer.receive().empty());
  ASSERT_EQ(qp.receive.reply_count, 1U);
  ASSERT_EQ(api().destroy_qp(std::exchange(peer.device->qp, other)), 0);
  const auto seen = peer.receive();
  EXPECT_TRUE(peer.receive_after(10 * kSecond).empty());
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].opcode, Opcode::kAcknowledge);
  EXPECT_EQ(seen[0].psn, peer.psn + 4);
}

// What a queue pair that ends still owes to READs is nobody's any more: answering it could only find new errors.
TEST(ResponderWrite, AResetWithAnAcknowledgementHeldAnswersNoRead) {
  RawPeer peer({}, {.mtu = IBV_MTU_256});
  hold_an_acknowledgement(peer);
  peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn + 5, .reth = peer.target(0, 4 << 20)});
  ASSERT_EQ(impl(peer.device->qp).receive.reply_count, 1U) << "one turn answers less";
  peer.receive_after(0);
  ASSERT_EQ(api().dereg_mr(std::exchange(peer.device->mr, nullptr)), 0);
  ASSERT_EQ(peer.device->to_state(IBV_QPS_RESET), 0);
  EXPECT_EQ(peer.device->state(), IBV_QPS_RESET);
  pollfd event{peer.device->context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&event, 1, 0), 0);
}

struct BadWrite {
  const char* name;
  std::function<void(RawPeer&, Reth&)> spoil;
  Syndrome answer;
};
class ResponderBadWrite : public testing::TestWithParam<BadWrite> {};

TEST_P(ResponderBadWrite, IsRefusedAndTouchesNothing) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(64, 1), .reth = peer.target(0, 64)};
  GetParam().spoil(peer, packet.reth);
  ASSERT_EQ(peer.device->post_recv(5, 0, 10), 0);
  peer.send(packet);
  peer.expect_answer(GetParam().answer, peer.psn);
  EXPECT_TRUE(untouched(*peer.device));
  EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].wr_id, 5U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_WR_FLUSH_ERR);
  // A lost refusal is repeated when the peer asks again; nothing is executed any more.
  packet.reth = peer.target(0, 64);
  peer.send(packet);
  peer.expect_answer(GetParam().answer, peer.psn);
  EXPECT_TRUE(untouched(*peer.device));
}

constexpr std::size_t kBuffer = EndpointOptions{}.buffer_bytes;

INSTANTIATE_TEST_SUITE_P(
    Cases, ResponderBadWrite,
    testing::Values(
        BadWrite{"wrong_key", [](RawPeer&, Reth& reth) { reth.rkey ^= 1; }, Syndrome::kNakRemoteAccess},
        BadWrite{"key_far_off", [](RawPeer&, Reth& reth) { reth.rkey ^= 0x80000000; }, Syndrome::kNakRemoteAccess},
        BadWrite{"one_before", [](RawPeer&, Reth& reth) { reth.address -= 1; }, Syndrome::kNakRemoteAccess},
        BadWrite{"one_past", [](RawPeer&, Reth& reth) { reth.address += kBuffer - 63; }, Syndrome::kNakRemoteAccess},
        BadWrite{"wraps", [](RawPeer&, Reth& reth) { reth.address = ~std::uint64_t{0} - 10; },
                 Syndrome::kNakRemoteAccess},
        BadWrite{"longer_than_region", [](RawPeer&, Reth& reth) { reth.length = kBuffer + 1; },
                 Syndrome::kNakRemoteAccess},
        BadWrite{"length_2_31_plus_1", [](RawPeer&, Reth& reth) { reth.length = 0x80000001; },
                 Syndrome::kNakInvalidRequest},
        BadWrite{"length_too_small", [](RawPeer&, Reth& reth) { reth.length = 63; }, Syndrome::kNakInvalidRequest},
        BadWrite{"length_too_large", [](RawPeer&, Reth& reth) { reth.length = 65; }, Syndrome::kNakInvalidRequest},
        BadWrite{"deregistered",
                 [](RawPeer& peer, Reth&) {
                   EXPECT_EQ(api().dereg_mr(std::exchange(peer.device->mr, nullptr)), 0);
                   peer.device->mr = api().reg_mr(peer.device->pd, peer.device->buffer.data(), kBuffer, 7);
                   // The key must be a new one, else the test proves nothing.
                 },
                 Syndrome::kNakRemoteAccess}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(ResponderAccess, OfTheRegionAndOfTheQueuePairBothCount) {
  {
    RawPeer peer({.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
    peer.send(
        {.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)});
    peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
  }
  {
    RawPeer peer({.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
    peer.send({.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = peer.target(0, 4)});
    peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
  }
  RawPeer peer;
  ibv_qp_attr attr{};
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  ASSERT_EQ(api().modify_qp(peer.device->qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
  peer.send(
      {.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)});
  peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
  EXPECT_TRUE(untouched(*peer.device));
}

TEST(ResponderAccess, ARegionOfAnotherProtectionDomainIsOutOfReach) {
  RawPeer peer;
  ibv_pd* other = api().alloc_pd(peer.device->context);
  ibv_mr* region = api().reg_mr(other, peer.device->buffer.data(), 100, 7);
  Reth reth = peer.target(0, 4);
  reth.rkey = region->rkey;
  peer.send({.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = reth});
  peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn);
  EXPECT_EQ(api().dealloc_pd(other), EBUSY);
  EXPECT_EQ(api().dereg_mr(region), 0);
  EXPECT_EQ(api().dealloc_pd(other), 0);
}

TEST(ResponderWrite, OfNothingNeedsNoKey) {
  RawPeer peer;
  peer.send({.opcode = Opcode::kWriteOnly, .psn = peer.psn, .reth = {1, 2, 0}});
  peer.expect_answer(Syndrome::kAck, peer.psn);
}

TEST(ResponderWrite, ARegionThatGoesInTheMiddleOfAMessageIsNotTouchedAgain) {
  RawPeer peer;
  peer.send({.opcode = Opcode::kWriteFirst,
             .psn = peer.psn,
             .payload = RawPeer::payload(1024, 1),
             .reth = peer.target(0, 2048),
             .ack_request = false});
  ASSERT_EQ(api().dereg_mr(std::exchange(peer.device->mr, nullptr)), 0);
  peer.send({.opcode = Opcode::kWriteLast, .psn = peer.psn + 1, .payload = RawPeer::payload(1024, 2)});
  peer.expect_answer(Syndrome::kNakRemoteAccess, peer.psn + 1);
  EXPECT_EQ(peer.device->buffer[1023], 1);
  EXPECT_EQ(peer.device->buffer[1024], 0);
}

TEST(ResponderOpcodes, OutOfSequenceOrOfWrongLengthAreInvalid) {
  const auto refused = [](std::vector<Forged> packets) {
    RawPeer peer;
    std::uint32_t offset = 0;
    for (Forged& packet : packets) {
      packet.psn = peer.psn + offset++;
      if (packet.reth.length != 0) packet.reth = peer.target(0, packet.reth.length);
      packet.ack_request = false;
      peer.device->post_recv(offset, 0, 100'000);
      peer.send(packet);
    }
    peer.expect_answer(Syndrome::kNakInvalidRequest, peer.psn + (offset - 1));
    EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  };
  const auto full = RawPeer::payload(1024, 1);
  const auto small = RawPeer::payload(8, 1);
  refused({{.opcode = Opcode::kWriteMiddle, .payload = full}});
  refused({{.opcode = Opcode::kSendLast, .payload = small}});
  refused({{.opcode = Opcode::kSendFirst, .payload = full}, {.opcode = Opcode::kSendOnly, .payload = small}});
  refused({{.opcode = Opcode::kSendFirst, .payload = full}, {.opcode = Opcode::kWriteLast, .payload = small}});
  refused({{.opcode = Opcode::kWriteFirst, .payload = full, .reth = {0, 0, 4096}},
           {.opcode = Opcode::kReadRequest, .reth = {0, 0, 8}}});
  refused({{.opcode = Opcode::kSendFirst, .payload = small}});
  refused({{.opcode = Opcode::kSendOnly, .payload = RawPeer::payload(1028, 1)}});
  refused({{.opcode = Opcode::kSendFirst, .payload = full}, {.opcode = Opcode::kSendLast}});
  refused({{.opcode = Opcode::kWriteFirst, .payload = full, .reth = {0, 0, 1024}}});
  refused({{.opcode = Opcode::kReadRequest, .payload = small, .reth = {0, 0, 8}}});
  refused({{.opcode = Opcode::kCompareSwap, .payload = small}});
}

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
  EXPECT_TRUE(untouched(*peer.device));
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

TEST(ResponderSend, WithoutAReceiveAsksToWait) {
  RawPeer peer({}, {.min_rnr_timer = 9});
  const Forged packet{.opcode = Opcode::kSendOnlyImmediate,
                      .psn = peer.psn,
                      .payload = RawPeer::payload(10, 5),
                      .immediate = 0xabcd,
                      .solicited = true};
  peer.send(packet);
  peer.expect_answer(static_cast<Syndrome>(0x20 | 9), peer.psn);
  ASSERT_EQ(peer.device->post_recv(1, 100, 10), 0);
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].byte_len, 10U);
  EXPECT_EQ(peer.device->done[0].imm_data, 0xabcdU);
  EXPECT_EQ(peer.device->buffer[100], 5);
  EXPECT_EQ(peer.device->counter("send_rnr_err"), 1U);
}

TEST(ResponderSend, AnImmediateWithAWriteNeedsAReceiveToo) {
  RawPeer peer;
  const Forged packet{.opcode = Opcode::kWriteOnlyImmediate,
                      .psn = peer.psn,
                      .payload = RawPeer::payload(4, 5),
                      .reth = peer.target(0, 4),
                      .immediate = 77};
  peer.send(packet);
  peer.expect_answer(static_cast<Syndrome>(0x20 | 12), peer.psn);
  EXPECT_TRUE(untouched(*peer.device));
  ASSERT_EQ(peer.device->post_recv(1, 0, 0), 0);
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(peer.device->done[0].imm_data, 77U);
  EXPECT_EQ(peer.device->done[0].byte_len, 4U);
}

TEST(ResponderSend, LongerThanTheReceiveFailsBothEnds) {
  RawPeer peer;
  ASSERT_EQ(peer.device->post_recv(1, 0, 9), 0);
  ASSERT_EQ(peer.device->post_recv(2, 0, 9), 0);
  peer.send({.opcode = Opcode::kSendOnly, .psn = peer.psn, .payload = RawPeer::payload(10, 5)});
  peer.expect_answer(Syndrome::kNakInvalidRequest, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 2U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(peer.device->done[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(untouched(*peer.device));
}

TEST(ResponderSend, IntoMemoryWithoutAKeyIsALocalError) {
  RawPeer peer;
  ibv_mr* read_only = api().reg_mr(peer.device->pd, peer.device->buffer.data(), 100, IBV_ACCESS_REMOTE_READ);
  std::swap(read_only, peer.device->mr);
  ASSERT_EQ(peer.device->post_recv(1, 0, 9), 0);
  std::swap(read_only, peer.device->mr);
  peer.send({.opcode = Opcode::kSendOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 5)});
  peer.expect_answer(Syndrome::kNakRemoteOperation, peer.psn);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(untouched(*peer.device));
  EXPECT_EQ(api().dereg_mr(read_only), 0);
}

TEST(ResponderDrops, WhatIsNotForUsSilently) {
  RawPeer peer;
  const Forged good{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  Forged packet = good;
  packet.pkey = 0x7ffe;
  peer.send(packet);
  packet = good;
  packet.qpn = peer.device->qp->qp_num ^ 1;
  peer.send(packet);
  packet = good;
  packet.qpn = peer.device->qp->qp_num ^ 0x800000;
  peer.send(packet);
  peer.route.source = Gid::from_ipv4(0x0a000003);  // an ICRC for another address
  peer.send(good);
  peer.route.source = peer.port->address();
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(untouched(*peer.device));
  EXPECT_EQ(peer.device->counter("drop_pkey"), 1U);
  EXPECT_EQ(peer.device->counter("drop_no_qp"), 2U);
  EXPECT_EQ(peer.device->counter("drop_icrc"), 1U);
  packet = good;
  packet.pkey = 0x7fff;  // a limited member of the partition
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, peer.psn);
}

TEST(ResponderIcrc, OfAPeerThatCountsItsIdsIsExplained) {
  RawPeer peer;
  peer.port->count_ids(0xc1e4);  // as Linux rxe does
  for (std::uint32_t i = 0; i < 5; ++i) {
    peer.send({.opcode = Opcode::kWriteOnly,
               .psn = peer.psn + i,
               .payload = RawPeer::payload(4, 1),
               .reth = peer.target(0, 4)});
    peer.expect_answer(Syndrome::kAck, peer.psn + i);
  }
  EXPECT_EQ(peer.device->counter("icrc_explained"), 5U);
}

TEST(ResponderIcrc, APeerWhoseIdsAreKnownDoesNotBeginToCount) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  for (std::uint32_t i = 0; i < 3; ++i, ++packet.psn) {
    peer.send(packet);
    peer.expect_answer(Syndrome::kAck, packet.psn);
  }
  peer.port->count_ids(1000);
  peer.send(packet);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->counter("drop_icrc"), 1U);
  peer.port->count_ids(17);  // as the 17th segment of a segmented send has it
  peer.send(packet);
  peer.expect_answer(Syndrome::kAck, packet.psn);
}

TEST(ResponderDrops, EverythingInTheErrorState) {
  RawPeer peer;
  ASSERT_EQ(peer.device->to_state(IBV_QPS_ERR), 0);
  peer.send(
      {.opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)});
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(untouched(*peer.device));
  EXPECT_EQ(peer.device->counter("drop_state"), 1U);
}

TEST(ResponderDrops, OpcodesOfOtherServices) {
  RawPeer peer;
  Forged packet{
      .opcode = Opcode::kWriteOnly, .psn = peer.psn, .payload = RawPeer::payload(4, 1), .reth = peer.target(0, 4)};
  packet.opcode = for_uc(Opcode::kWriteOnly);
  peer.send(packet);
  packet.opcode = Opcode::kUdSendOnly;
  peer.send(packet);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_TRUE(untouched(*peer.device));
  EXPECT_EQ(peer.device->counter("drop_wrong_service"), 2U);
}

}  // namespace
}  // namespace fairlead::soft::test
