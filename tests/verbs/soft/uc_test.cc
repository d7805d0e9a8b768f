// UC: what arrives in order is delivered, what does not is dropped, and nobody is told.
#include "fairlead/log.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

constexpr EndpointOptions kUc{.type = IBV_QPT_UC};

TEST(Uc, SendsAndWritesArriveAndCompleteAtOnce) {
  Simulation world({}, {}, kUc);
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b);
  fill_pattern(a.buffer, 1);
  ASSERT_EQ(b.post_recv(1, 100'000, 50'000), 0);
  ASSERT_EQ(b.post_recv(2, 0, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 3, 0, 33'333, nullptr, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 4, 0, 77'777, &b, 0), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE_WITH_IMM, 5, 7, 1, &b, 200'000, IBV_SEND_SIGNALED, 0x01020304), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 3 && b.done.size() == 2; }));
  for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.done[0].byte_len, 33'333U);
  EXPECT_EQ(b.done[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(b.done[1].imm_data, 0x01020304U);
  EXPECT_TRUE(std::equal(&a.buffer[0], &a.buffer[33'333], &b.buffer[100'000]));
  EXPECT_TRUE(std::equal(&a.buffer[0], &a.buffer[77'777], &b.buffer[0]));
}

TEST(Uc, WhatReadsOrIsAtomicIsRefusedWhenPosted) {
  Simulation world({}, {}, kUc);
  connect(*world.a, *world.b);
  EXPECT_EQ(world.a->post(IBV_WR_RDMA_READ, 1, 0, 8, world.b.get(), 0), EINVAL);
  EXPECT_EQ(world.a->post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, world.b.get(), 0), EINVAL);
}

TEST(Uc, MuchMoreThanTheWindowArrivesWithoutLoss) {
  Simulation world({}, {}, kUc);
  connect(*world.a, *world.b, {.mtu = IBV_MTU_4096});
  fill_pattern(world.a->buffer, 2);
  for (std::uint64_t id = 1; id <= 8; ++id) {
    ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, id, 0, 4 << 20, world.b.get(), 0), 0);
  }
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 8; }, 10 * kSecond));
  world.run_for(1 * kMillisecond);
  EXPECT_EQ(world.a->buffer, world.b->buffer);
  EXPECT_EQ(world.b->counter("drop_message"), 0U);
}

// More than leaves at once, of a queue pair that goes before others: its last packets leave in the turn that it has
// when something urgent comes in.
TEST(Uc, WhatLeavesInAnUrgentTurnCompletes) {
  Simulation world({}, {}, kUc, Ways::kTwo);
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b, {.service_level = 1});
  ASSERT_EQ(a.post_recv(1, 0, 8), 0);
  ASSERT_EQ(b.post(IBV_WR_SEND, 2, 0, 8, nullptr, 0), 0);
  constexpr std::size_t kCount = 70;
  ibv_sge segment = a.sge(0, 8);
  std::array<ibv_send_wr, kCount> list{};
  for (std::size_t i = 0; i < kCount; ++i) {
    list[i].wr_id = 100 + i;
    list[i].next = i + 1 < kCount ? &list[i + 1] : nullptr;
    list[i].opcode = IBV_WR_SEND;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].sg_list = &segment;
    list[i].num_sge = 1;
  }
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, list.data(), &bad), 0);
  for (int i = 0; i < 100; ++i) a.poll();
  EXPECT_EQ(a.done.size(), kCount + 1);
}

TEST(UcResponder, AMessageWithAGapIsDroppedAndTheNextOneTaken) {
  RawPeer peer(kUc);
  ASSERT_EQ(peer.device->post_recv(1, 0, 4096), 0);
  peer.send({.opcode = for_uc(Opcode::kSendFirst), .psn = peer.psn, .payload = RawPeer::payload(1024, 1)});
  peer.send({.opcode = for_uc(Opcode::kSendLast), .psn = peer.psn + 2, .payload = RawPeer::payload(8, 2)});
  peer.send({.opcode = for_uc(Opcode::kSendOnly), .psn = peer.psn + 3, .payload = RawPeer::payload(4, 3)});
  EXPECT_TRUE(peer.receive().empty());  // no NAK, no ACK
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].wr_id, 1U);
  EXPECT_EQ(peer.device->done[0].byte_len, 4U);
  EXPECT_EQ(peer.device->buffer[0], 3);
  EXPECT_GE(peer.device->counter("drop_message"), 1U);
}

TEST(UcResponder, WhatCannotBeTakenIsDroppedInSilence) {
  RawPeer peer(kUc);
  peer.send({.opcode = for_uc(Opcode::kSendOnly), .psn = peer.psn, .payload = RawPeer::payload(4, 1)});
  EXPECT_EQ(peer.device->counter("drop_no_receive"), 1U);
  ASSERT_EQ(peer.device->post_recv(1, 0, 4), 0);
  peer.send({.opcode = for_uc(Opcode::kSendOnly), .psn = peer.psn + 1, .payload = RawPeer::payload(5, 1)});
  EXPECT_EQ(peer.device->counter("drop_length"), 1U);
  Reth beyond = peer.target(peer.device->buffer.size() - 2, 4);
  peer.send(
      {.opcode = for_uc(Opcode::kWriteOnly), .psn = peer.psn + 2, .payload = RawPeer::payload(4, 1), .reth = beyond});
  EXPECT_EQ(peer.device->counter("drop_message"), 1U);
  EXPECT_TRUE(peer.receive().empty());
  EXPECT_EQ(peer.device->state(), IBV_QPS_RTS);
  peer.send({.opcode = for_uc(Opcode::kSendOnly), .psn = peer.psn + 3, .payload = RawPeer::payload(4, 9)});
  ASSERT_EQ(peer.device->done.size(), 1U);
  EXPECT_EQ(peer.device->done[0].status, IBV_WC_SUCCESS);
}

TEST(UcRequester, ABadKeyTakesTheSendQueueAloneToError) {
  set_log_level(LogLevel::kOff);
  RawPeer peer(kUc);
  Endpoint& a = *peer.device;
  ASSERT_EQ(a.post_recv(7, 0, 64), 0);
  a.mr->lkey ^= 0x100;
  ASSERT_EQ(a.post(IBV_WR_SEND, 1, 0, 500, nullptr, 0), 0);
  a.mr->lkey ^= 0x100;
  ASSERT_EQ(a.post(IBV_WR_SEND, 2, 0, 500, nullptr, 0), 0);
  a.poll();
  ASSERT_EQ(a.done.size(), 2U);
  EXPECT_EQ(a.done[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a.done[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a.state(), IBV_QPS_SQE);
  peer.send({.opcode = for_uc(Opcode::kSendOnly), .psn = peer.psn, .payload = RawPeer::payload(4, 9)});
  EXPECT_EQ(a.done.size(), 3U);  // it still receives
  ASSERT_EQ(a.to_state(IBV_QPS_RTS), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 3, 0, 500, nullptr, 0), 0);
  a.poll();
  EXPECT_EQ(a.done.back().status, IBV_WC_SUCCESS);
  EXPECT_EQ(peer.receive().size(), 1U);
  set_log_level(LogLevel::kWarning);
}

TEST(Receipts, AreAwaitedUntilThePeerIsKnownToSendNone) {
  RawPeer peer(kUc);
  ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, peer.device.get(), 0), 0);
  const auto seen = peer.receive();
  ASSERT_FALSE(seen.empty());
  EXPECT_LT(seen.size() * 1024, 256U << 10);  // a window
  EXPECT_TRUE(peer.receive().empty());
  // It may be of our kind, and its process not run just now.
  for (int window = 0; window < 3; ++window) {
    EXPECT_TRUE(peer.receive_after(20 * kMillisecond).empty()) << window;
    EXPECT_FALSE(peer.receive_after(12 * kMillisecond).empty()) << window;
  }
  EXPECT_FALSE(peer.receive_after(3 * kMillisecond).empty());
  peer.send({.opcode = Opcode::kReceipt, .psn = Psn(1)});  // of nothing that was asked
  EXPECT_TRUE(peer.receive().empty());
}

TEST(UcFaults, DestroyedOrMovedToErrorWithWorkQueued) {
  for (const bool destroyed : {false, true}) {
    Simulation world({}, {}, kUc);
    connect(*world.a, *world.b);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, id, 0, 1 << 20, world.b.get(), 0), 0);
    }
    if (destroyed) {
      ASSERT_EQ(api().destroy_qp(std::exchange(world.a->qp, nullptr)), 0);
    } else {
      ASSERT_EQ(world.a->to_state(IBV_QPS_ERR), 0);
    }
    world.run_for(100 * kMillisecond);
    if (!destroyed) {
      EXPECT_EQ(world.a->done.size(), 4U);
    }
  }
}

}  // namespace
}  // namespace fairlead::soft::test
