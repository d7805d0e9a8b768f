// UD: datagrams to whom an address handle names, behind 40 bytes that say who sent them.
#include "fairlead/log.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/api.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kGrh = 40;
constexpr std::uint32_t kMtu = 4096;

class Ud : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    connect(a(), b());
    ibv_ah_attr attr = to(b());
    ah_ = soft::api::create_ah(a().pd, &attr);
    ASSERT_NE(ah_, nullptr);
  }
  void TearDown() override {
    if (ah_ != nullptr) {
      EXPECT_EQ(soft::api::destroy_ah(ah_), 0);
    }
    set_log_level(LogLevel::kWarning);
  }

  Endpoint& a() { return *world_.a; }
  Endpoint& b() { return *world_.b; }
  static ibv_ah_attr to(const Endpoint& peer) {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = peer.gid();
    attr.grh.sgid_index = 1;
    return attr;
  }
  int send(Endpoint& from, ibv_ah* ah, std::uint32_t qpn, std::size_t length, std::uint32_t qkey = Endpoint::kQkey,
           ibv_wr_opcode opcode = IBV_WR_SEND) {
    ibv_sge segment = from.sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = 100;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    wr.imm_data = 0xabcd;
    wr.wr.ud = {ah, qpn, qkey};
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(from.qp, &wr, &bad);
  }
  void settle() { world_.run_for(1 * kMillisecond); }

  Simulation world_{{}, {}, {.type = IBV_QPT_UD}};
  ibv_ah* ah_ = nullptr;
};

TEST_F(Ud, ADatagramArrivesWithItsSender) {
  fill_pattern(a().buffer, 3);
  ASSERT_EQ(b().post_recv(1, 0, kGrh + 100), 0);
  ASSERT_EQ(send(a(), ah_, b().qp->qp_num, 100, Endpoint::kQkey, IBV_WR_SEND_WITH_IMM), 0);
  settle();
  ASSERT_EQ(a().done.size(), 1U);
  EXPECT_EQ(a().done[0].status, IBV_WC_SUCCESS);
  ASSERT_EQ(b().done.size(), 1U);
  const ibv_wc& got = b().done[0];
  EXPECT_EQ(got.byte_len, kGrh + 100);
  EXPECT_EQ(got.src_qp, a().qp->qp_num);
  EXPECT_EQ(got.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
  EXPECT_EQ(got.imm_data, 0xabcdU);
  EXPECT_TRUE(std::equal(&a().buffer[0], &a().buffer[100], &b().buffer[kGrh]));
  const std::vector<std::uint8_t> ends(&b().buffer[32], &b().buffer[40]);
  EXPECT_EQ(ends, (std::vector<std::uint8_t>{10, 0, 0, 1, 10, 0, 0, 2}));
}

TEST_F(Ud, AnAnswerGoesToWhomTheCompletionNames) {
  ASSERT_EQ(b().post_recv(1, 0, kGrh + 8), 0);
  ASSERT_EQ(a().post_recv(2, 1000, kGrh + 8), 0);
  ASSERT_EQ(send(a(), ah_, b().qp->qp_num, 8), 0);
  settle();
  ASSERT_EQ(b().done.size(), 1U);
  ibv_grh grh;
  std::memcpy(&grh, b().buffer.data(), sizeof(grh));
  ibv_ah_attr attr;
  ASSERT_EQ(soft::api::init_ah_from_wc(b().context, 1, &b().done[0], &grh, &attr), 0);
  EXPECT_EQ(attr.grh.sgid_index, 1);
  EXPECT_EQ(Gid::from_verbs(attr.grh.dgid), Gid::from_verbs(a().gid()));
  ibv_ah* back = soft::api::create_ah_from_wc(b().pd, &b().done[0], &grh, 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(send(b(), back, b().done[0].src_qp, 8), 0);
  ASSERT_EQ(soft::api::destroy_ah(back), 0);  // at once
  settle();
  EXPECT_EQ(a().done.size(), 2U);
  std::memset(&grh, 0, sizeof(grh));
  EXPECT_NE(soft::api::init_ah_from_wc(b().context, 1, &b().done[0], &grh, &attr), 0);
}

TEST_F(Ud, WhatDoesNotFitIsDropped) {
  const std::uint32_t qpn = b().qp->qp_num;
  ASSERT_EQ(send(a(), ah_, qpn, 8), 0);
  settle();
  EXPECT_EQ(b().counter("drop_no_receive"), 1U);
  ASSERT_EQ(b().post_recv(1, 0, kGrh + 7), 0);
  ASSERT_EQ(send(a(), ah_, qpn, 8), 0);
  ASSERT_EQ(send(a(), ah_, qpn, 8, 0x999), 0);
  ASSERT_EQ(send(a(), ah_, qpn ^ 0x10000, 8), 0);
  settle();
  EXPECT_EQ(b().counter("drop_length"), 1U);
  EXPECT_EQ(b().counter("drop_qkey"), 1U);
  EXPECT_EQ(b().counter("drop_no_qp"), 1U);
  EXPECT_TRUE(b().done.empty());
  ASSERT_EQ(send(a(), ah_, qpn, 7, 0x80000000), 0);  // with the upper bit, the queue pair's own key counts
  settle();
  EXPECT_EQ(b().done.size(), 1U);
}

TEST_F(Ud, TheLargestIsThePathMtu) {
  ASSERT_EQ(b().post_recv(1, 0, kGrh + kMtu), 0);
  ASSERT_EQ(send(a(), ah_, b().qp->qp_num, kMtu), 0);
  ASSERT_EQ(send(a(), ah_, b().qp->qp_num, kMtu + 1), 0);
  settle();
  ASSERT_EQ(a().done.size(), 2U);
  EXPECT_EQ(a().done[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(a().done[1].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(a().state(), IBV_QPS_SQE);
  EXPECT_EQ(b().done.size(), 1U);
}

// A port may hand out packets that are longer than any path MTU.
TEST(UdDatagram, OfMoreThanThePathMtuIsDropped) {
  RawPeer peer({.type = IBV_QPT_UD});
  ibv_mr* null = soft::api::alloc_null_mr(peer.device->pd);
  ASSERT_NE(null, nullptr);
  ibv_sge into[] = {peer.device->sge(0, kGrh), {0, 16384, null->lkey}};
  ibv_recv_wr receive{};
  receive.sg_list = into;
  receive.num_sge = 2;
  ibv_recv_wr* bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(peer.device->qp, &receive, &bad_receive), 0);
  const auto send_of = [&](std::size_t length) {
    peer.send({.opcode = Opcode::kUdSendOnly,
               .payload = RawPeer::payload(length, 7),
               .deth = {Endpoint::kQkey, RawPeer::kQpn}});
  };
  send_of(2 * kMtu);
  EXPECT_EQ(peer.device->counter("drop_length"), 1U);
  EXPECT_TRUE(peer.device->done.empty());
  EXPECT_TRUE(peer.untouched());

  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = peer.port->address().to_verbs();
  attr.grh.sgid_index = 1;
  ibv_ah* ah = soft::api::create_ah(peer.device->pd, &attr);
  ASSERT_NE(ah, nullptr);
  ibv_sge from{0, kMtu, null->lkey};
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.sg_list = &from;
  send.num_sge = 1;
  send.wr.ud = {ah, RawPeer::kQpn, Endpoint::kQkey};
  ibv_send_wr* bad_send = nullptr;
  ASSERT_EQ(ibv_post_send(peer.device->qp, &send, &bad_send), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].payload, RawPeer::payload(kMtu, 0)) << "what was dropped is in memory of the device's own";

  send_of(kMtu);
  ASSERT_EQ(peer.device->done.size(), 1U) << "the receive request stayed for a datagram that fits";
  EXPECT_EQ(peer.device->done[0].byte_len, kGrh + kMtu);
  EXPECT_EQ(soft::api::destroy_ah(ah), 0);
  EXPECT_EQ(soft::api::dereg_mr(null), 0);
}

TEST_F(Ud, HandlesThatLeadNowhereAreRefused) {
  ibv_ah_attr attr = to(b());
  attr.is_global = 0;
  EXPECT_EQ(soft::api::create_ah(a().pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr = to(b());
  attr.port_num = 2;
  EXPECT_EQ(soft::api::create_ah(a().pd, &attr), nullptr);
  EXPECT_EQ(send(a(), nullptr, 5, 8), EINVAL);
  EXPECT_EQ(send(a(), ah_, 5, 8, 0, IBV_WR_RDMA_WRITE), EINVAL);
  EXPECT_EQ(api().dealloc_pd(a().pd), EBUSY);
}

TEST_F(Ud, PeersThatNobodyUsesAreForgotten) {
  ibv_ah_attr attr = to(b());
  const auto make_to = [&](std::uint32_t address) {
    attr.grh.dgid = Gid::from_ipv4(address).to_verbs();
    return soft::api::create_ah(a().pd, &attr);
  };
  ASSERT_EQ(b().post_recv(1, 0, kGrh + 8), 0);
  ASSERT_EQ(send(a(), ah_, b().qp->qp_num, 8), 0);
  ASSERT_EQ(soft::api::destroy_ah(std::exchange(ah_, nullptr)), 0) << "before the datagram has left";
  PortSlot& port = *impl(a().context).domain().find_port(Gid::from_ipv4(0x0a000001));
  std::vector<ibv_ah*> held;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    ibv_ah* const ah = make_to(0x0b000000 + i);
    ASSERT_NE(ah, nullptr);
    if (i % 10 == 0) {
      held.push_back(ah);
    } else {
      ASSERT_EQ(soft::api::destroy_ah(ah), 0);
    }
  }
  EXPECT_LE(port.peers(), 2000 + 1024U);
  for (std::uint32_t i = 0; i < 20'000; i += 10) {
    EXPECT_NE(port.find_flow(Gid::from_ipv4(0x0b000000 + i)), nullptr) << i;
  }
  settle();
  EXPECT_EQ(b().done.size(), 1U);
  for (ibv_ah* const ah : held) EXPECT_EQ(soft::api::destroy_ah(ah), 0);
  for (std::uint32_t i = 0; i < 2000; ++i) EXPECT_EQ(soft::api::destroy_ah(make_to(0x0c000000 + i)), 0);
  EXPECT_LE(port.peers(), 1024U);
}

// Nobody says what became of them, or says so late: a connection to the same peer has half of the room all the same.
TEST_F(Ud, DatagramsWithoutReceiptsLeaveConnectionsTheirRoom) {
  ibv_qp* const ends[] = {a().make_qp({}), b().make_qp({})};
  ibv_qp* const datagrams[] = {std::exchange(a().qp, ends[0]), std::exchange(b().qp, ends[1])};
  connect(a(), b());
  for (const bool late : {false, true}) {
    for (unsigned sent = 0; sent < 250; ++sent) {
      a().qp = datagrams[0];
      ASSERT_EQ(send(a(), ah_, late ? datagrams[1]->qp_num : 0xabcdef, 1024), 0);
    }
    a().qp = ends[0];
    world_.run_for(100 * kMicrosecond);  // all that there is room for
    a().done.clear();
    ASSERT_EQ(a().post(IBV_WR_RDMA_WRITE, 1, 0, 256 << 10, &b(), 0), 0);
    const auto is_done = [&] {
      return std::ranges::any_of(a().done, [](const ibv_wc& one) { return one.wr_id == 1; });
    };
    EXPECT_TRUE(world_.run_until(is_done, kMillisecond)) << late;
    world_.run_for(kSecond);
  }
  a().qp = datagrams[0];
  b().qp = datagrams[1];
  for (ibv_qp* const each : ends) EXPECT_EQ(api().destroy_qp(each), 0);
}

TEST_F(Ud, ADatagramWithAWrongKeyIsReceivedAllTheSame) {
  constexpr std::size_t kSent = 11;
  for (std::size_t i = 0; i < kSent; ++i) {
    ASSERT_EQ(send(a(), ah_, b().qp->qp_num, 4096, Endpoint::kQkey + 1), 0);
  }
  settle();
  EXPECT_EQ(b().counter("drop_qkey"), kSent);
  PortSlot& port = *impl(a().context).domain().find_port(Gid::from_ipv4(0x0a000001));
  Flow* const flow = port.find_flow(Gid::from_ipv4(0x0a000002));
  ASSERT_NE(flow, nullptr);
  EXPECT_LT(flow->window().used(), std::size_t{32} << 10) << "a receipt came";
}

TEST_F(Ud, AReceiverThatFallsBehindHoldsTheSenderBack) {
  // 256 requests for 1000 datagrams: the program takes completions and posts again, one for one.
  for (std::uint64_t id = 0; id < 256; ++id) ASSERT_EQ(b().post_recv(id, 0, kGrh + 64), 0);
  unsigned sent = 0;
  std::size_t posted = 0;
  for (unsigned step = 0; step < 20'000 && b().done.size() < 1000; ++step) {
    for (; sent < 1000 && send(a(), ah_, b().qp->qp_num, 64) == 0; ++sent) {
    }
    world_.run_for(world_.step_time);
    for (; posted < b().done.size(); ++posted) ASSERT_EQ(b().post_recv(1, 0, kGrh + 64), 0);
  }
  EXPECT_EQ(b().done.size(), 1000U);
  EXPECT_EQ(b().counter("drop_no_receive"), 0U);
}

}  // namespace
}  // namespace fairlead::soft::test
