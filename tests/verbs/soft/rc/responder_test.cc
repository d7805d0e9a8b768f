// What the responder does with requests in their turn: it places them, or refuses them untouched.
#include <poll.h>

#include "tests/verbs/soft/raw_peer.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

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
  EXPECT_TRUE(peer.untouched());
  EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].wr_id, 5U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_WR_FLUSH_ERR);
  // A lost refusal is repeated when the peer asks again; nothing is executed any more.
  packet.reth = peer.target(0, 64);
  peer.send(packet);
  peer.expect_answer(GetParam().answer, peer.psn);
  EXPECT_TRUE(peer.untouched());
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
  EXPECT_TRUE(peer.untouched());
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

// Linux rxe sends what was lost behind an acknowledgement in the middle of a message as a message of its own.
TEST(ResponderWrite, MayBeginAnewWhereItStands) {
  for (const std::uint32_t wrong : {0u, 1u, 2u}) {  // nothing, where it goes on, how much is left
    RawPeer peer;
    ASSERT_EQ(peer.device->post_recv(1, 4096, 10), 0);
    peer.send({.opcode = Opcode::kWriteFirst,
               .psn = peer.psn,
               .payload = RawPeer::payload(1024, 1),
               .reth = peer.target(10, 2054)});
    peer.expect_answer(Syndrome::kAck, peer.psn);
    peer.send({.opcode = Opcode::kWriteFirst,
               .psn = peer.psn + 1,
               .payload = RawPeer::payload(1024, 2),
               .reth = peer.target(1034 + (wrong == 1 ? 1 : 0), 1030 + (wrong == 2 ? 1 : 0))});
    peer.expect_answer(wrong == 0 ? Syndrome::kAck : Syndrome::kNakInvalidRequest, peer.psn + 1);
    if (wrong != 0) continue;
    peer.send({.opcode = Opcode::kWriteLastImmediate,
               .psn = peer.psn + 2,
               .payload = RawPeer::payload(6, 3),
               .immediate = 7});
    peer.expect_answer(Syndrome::kAck, peer.psn + 2);
    EXPECT_EQ(peer.device->buffer[1033], 1);
    EXPECT_EQ(peer.device->buffer[1034], 2);
    EXPECT_EQ(peer.device->buffer[2063], 3);
    peer.device->poll();
    ASSERT_EQ(peer.device->done.size(), 1u);
    EXPECT_EQ(peer.device->done[0].byte_len, 2054u) << "it is one message";
  }
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
  EXPECT_TRUE(peer.untouched());
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
  EXPECT_TRUE(peer.untouched());
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
  EXPECT_TRUE(peer.untouched());
  EXPECT_EQ(api().dereg_mr(read_only), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
