// Queue pairs as objects: states, limits, queues, flush, events.
#include <fcntl.h>

#include <set>

#include "fairlead/log.h"
#include "tests/readable.h"
#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

// Refusals log an error each, which the tests provoke.
class QuietLog : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kWarning); }
};
using QpState = QuietLog;
using Limits = QuietLog;
using CompletionQueue = QuietLog;

TEST_F(QpState, OnlyTheTransitionsOfTheSpecification) {
  Simulation world;
  Endpoint& a = *world.a;
  EXPECT_EQ(a.state(), IBV_QPS_RESET);
  EXPECT_EQ(a.to_state(IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(a.to_state(IBV_QPS_INIT), EINVAL);  // lacks attributes
  EXPECT_EQ(a.to_init(), 0);
  EXPECT_EQ(a.to_rts({}), EINVAL);
  EXPECT_EQ(a.to_rtr(5, world.b->gid(), {}), 0);
  EXPECT_EQ(a.state(), IBV_QPS_RTR);
  EXPECT_EQ(a.to_rts({}), 0);
  EXPECT_EQ(a.to_init(), EINVAL);
  EXPECT_EQ(a.to_state(IBV_QPS_ERR), 0);
  EXPECT_EQ(a.to_rts({}), EINVAL);
  EXPECT_EQ(a.to_state(IBV_QPS_RESET), 0);
  EXPECT_EQ(a.to_init(), 0);
}

TEST_F(QpState, AddressesThatCannotBeReachedAreRefused) {
  Simulation world;
  ASSERT_EQ(world.a->to_init(), 0);
  EXPECT_EQ(world.a->to_rtr(5, world.b->gid(0), {}), EAFNOSUPPORT);          // link-local peer
  EXPECT_EQ(world.a->to_rtr(5, world.b->gid(), {.gid_index = 0}), EINVAL);   // link-local source
  EXPECT_EQ(world.a->to_rtr(5, world.b->gid(), {.gid_index = 15}), EINVAL);  // no such GID
  EXPECT_EQ(world.a->to_rtr(5, world.b->gid(), {.max_reads = 129}), EINVAL);
  EXPECT_EQ(world.a->to_rtr(5, world.b->gid(), {}), 0);
}

TEST_F(QpState, PostingNeedsTheRightState) {
  Simulation world;
  Endpoint& a = *world.a;
  EXPECT_EQ(a.post_recv(1, 0, 1), EINVAL);
  EXPECT_EQ(a.post(IBV_WR_SEND, 1, 0, 1, nullptr, 0), EINVAL);
  ASSERT_EQ(a.to_init(), 0);
  EXPECT_EQ(a.post_recv(1, 0, 1), 0);
  EXPECT_EQ(a.post(IBV_WR_SEND, 1, 0, 1, nullptr, 0), EINVAL);
}

TEST_F(QpState, ErrorFlushesBothQueuesAndWhatIsPostedLater) {
  RawPeer peer;
  Endpoint& a = *peer.device;
  ASSERT_EQ(a.post_recv(1, 0, 1), 0);
  ASSERT_EQ(a.post_recv(2, 0, 1), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 3, 0, 1, nullptr, 0, 0), 0);
  ASSERT_EQ(a.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(a.post_recv(4, 0, 1), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 5, 0, 1, nullptr, 0), 0);
  a.poll();
  ASSERT_EQ(a.done.size(), 5U);
  std::multiset<std::uint64_t> ids;
  for (const ibv_wc& completion : a.done) {
    EXPECT_EQ(completion.status, IBV_WC_WR_FLUSH_ERR);
    ids.insert(completion.wr_id);
  }
  EXPECT_EQ(ids, (std::multiset<std::uint64_t>{1, 2, 3, 4, 5}));
}

// More than fits the peer's window, so that the last ones are posted while nobody needs to be told of them.
int post_more_than_fits(Endpoint& a, Endpoint& b) {
  constexpr int kPosted = 250;
  for (std::uint64_t id = 0; id < kPosted; ++id) {
    EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, id, 0, 8, &b, 0), 0);
  }
  EXPECT_LT(a.counter("sent_pkts"), std::uint64_t{kPosted} - 1);
  return kPosted;
}

TEST_F(QpState, WhatIsPostedWhileTheWindowIsFullIsSentOnceThereIsRoom) {
  Simulation world;
  connect(*world.a, *world.b);
  const std::size_t posted = static_cast<std::size_t>(post_more_than_fits(*world.a, *world.b));
  ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == posted; }));
  for (std::size_t i = 0; i < posted; ++i) {
    EXPECT_EQ(world.a->done[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(world.a->done[i].wr_id, i);
  }
}

TEST_F(QpState, WhatWasPostedWhileTheWindowWasFullIsFlushedWithTheRest) {
  Simulation world;
  connect(*world.a, *world.b);
  const std::size_t posted = static_cast<std::size_t>(post_more_than_fits(*world.a, *world.b));
  ASSERT_EQ(world.a->to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, posted, 0, 8, world.b.get(), 0), 0);
  for (int i = 0; i < 32; ++i) world.a->poll();
  ASSERT_EQ(world.a->done.size(), posted + 1);
  EXPECT_EQ(world.a->done.back().wr_id, posted);
  EXPECT_EQ(world.a->done.back().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(QpState, AfterResetItWorksAgainWithoutThePast) {
  Simulation world;
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b);
  ASSERT_EQ(a.post_recv(1, 0, 1), 0);
  ASSERT_EQ(b.post_recv(1, 0, 1), 0);
  ASSERT_EQ(a.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(b.to_state(IBV_QPS_RESET), 0);
  connect(a, b, {.psn = 5});
  ASSERT_EQ(b.post_recv(2, 0, 1), 0);
  ASSERT_EQ(a.post(IBV_WR_SEND, 3, 0, 1, nullptr, 0), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 1 && b.done.size() == 1; }));
  EXPECT_EQ(b.done[0].wr_id, 2U);
}

TEST_F(QpState, DestroyingWithWorkInFlightIsSafe) {
  Simulation world;
  connect(*world.a, *world.b, {.mtu = IBV_MTU_256});
  ASSERT_EQ(world.a->post(IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, world.b.get(), 0), 0);
  ASSERT_EQ(world.a->post(IBV_WR_RDMA_READ, 1, 0, 1 << 20, world.b.get(), 1 << 20), 0);
  world.run_for(100 * kMicrosecond);
  ASSERT_EQ(api().destroy_qp(std::exchange(world.a->qp, nullptr)), 0);
  world.run_for(10 * kMillisecond);
  EXPECT_TRUE(world.a->done.empty());
}

TEST_F(QpState, TheLostRefusalOfAProtectionErrorStillReachesTheRequester) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Simulation world({.drop = 0.5, .seed = seed}, {.drop = 0.3, .seed = seed + 100});
    Endpoint& a = *world.a;
    connect(a, *world.b, {.timeout = 18, .retry_cnt = 7});
    world.b->mr->rkey ^= 1;
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 5000, world.b.get(), 0), 0);
    world.b->mr->rkey ^= 1;
    ASSERT_TRUE(world.run_until([&] { return !a.done.empty(); }, 600 * kSecond)) << seed;
    EXPECT_EQ(a.done[0].status, IBV_WC_REM_ACCESS_ERR) << seed;
  }
}

TEST_F(Limits, QueuesTakeWhatTheyPromiseAndNoMore) {
  RawPeer peer({.max_wr = 5});
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(peer.device->qp, &attr, 0, &init), 0);
  ASSERT_GE(init.cap.max_send_wr, 5U);
  for (std::uint32_t i = 0; i < init.cap.max_send_wr; ++i) {
    ASSERT_EQ(peer.device->post(IBV_WR_SEND, i, 0, 1, nullptr, 0), 0);
  }
  EXPECT_EQ(peer.device->post(IBV_WR_SEND, 99, 0, 1, nullptr, 0), ENOMEM);
  for (std::uint32_t i = 0; i < init.cap.max_recv_wr; ++i) ASSERT_EQ(peer.device->post_recv(i, 0, 1), 0);
  EXPECT_EQ(peer.device->post_recv(99, 0, 1), ENOMEM);
}

TEST_F(Limits, WhatTheProfileLacksIsRefused) {
  ibv_device entry{};
  ManualClock clock;
  for (const Profile profile : {Profile::kFull, Profile::kPvrdma}) {
    Endpoint end(new Device(entry, profile, clock, LoopbackPort::make_pair().first),
                 {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
    ibv_qp* qp = end.make_qp({.max_inline = 64});
    EXPECT_EQ(qp != nullptr, profile == Profile::kFull);
    if (qp != nullptr) {
      EXPECT_EQ(api().destroy_qp(qp), 0);
    }
    EXPECT_EQ(end.make_qp({.max_wr = 1 << 20}), nullptr);
    EXPECT_EQ(api().reg_mr(end.pd, end.buffer.data(), 10, IBV_ACCESS_REMOTE_WRITE), nullptr);
    ibv_mr* bindable = api().reg_mr(end.pd, end.buffer.data(), 10, IBV_ACCESS_MW_BIND);
    EXPECT_EQ(bindable != nullptr, profile == Profile::kFull);
    if (bindable != nullptr) {
      EXPECT_EQ(api().dereg_mr(bindable), 0);
    }
    EXPECT_EQ(api().create_cq(end.context, 0, nullptr, nullptr, 0), nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.qp_type = IBV_QPT_RAW_PACKET;
    EXPECT_EQ(api().create_qp(end.pd, &init), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(api().destroy_cq(end.cq), EBUSY);
    EXPECT_EQ(api().dealloc_pd(end.pd), EBUSY);
  }
}

TEST_F(CompletionQueue, OverflowIsAnErrorOfTheQueueAndEndsTheQueuePair) {
  RawPeer peer({.cqe = 4});
  for (std::uint64_t id = 0; id < 6; ++id) ASSERT_EQ(peer.device->post(IBV_WR_SEND, id, 0, 1, nullptr, 0), 0);
  // Acknowledge without polling the queue in between.
  peer.device->done.clear();
  ibv_async_event event{};
  peer.send({.opcode = Opcode::kAcknowledge, .psn = peer.psn + 5});
  EXPECT_EQ(peer.device->done.size(), 4U);
  peer.device->poll();
  EXPECT_TRUE(peer.device->overflowed);
  EXPECT_EQ(peer.device->state(), IBV_QPS_ERR);
  ASSERT_EQ(api().get_async_event(peer.device->context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, peer.device->cq);
  api().ack_async_event(&event);
}

TEST_F(CompletionQueue, EventsComeOncePerArmingAndAsAskedFor) {
  RawPeer peer({.channel = true});
  Endpoint& a = *peer.device;
  for (std::uint64_t id = 0; id < 8; ++id) ASSERT_EQ(a.post_recv(id, 0, 4), 0);
  std::uint32_t next = 0;
  const auto message = [&](bool solicited) {
    peer.send({.opcode = Opcode::kSendOnly,
               .psn = peer.psn + next++,
               .payload = RawPeer::payload(4, 1),
               .solicited = solicited});
  };
  message(true);
  EXPECT_FALSE(readable(a.channel->fd));  // not armed
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 1), 0);
  message(false);
  EXPECT_FALSE(readable(a.channel->fd));
  message(true);
  EXPECT_TRUE(readable(a.channel->fd));
  message(true);
  ibv_cq* cq = nullptr;
  void* user = nullptr;
  ASSERT_EQ(api().get_cq_event(a.channel, &cq, &user), 0);
  EXPECT_EQ(cq, a.cq);
  EXPECT_EQ(user, &a);
  EXPECT_FALSE(readable(a.channel->fd));  // one event for one arming
  ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
  message(false);
  EXPECT_TRUE(readable(a.channel->fd));
  ASSERT_EQ(api().get_cq_event(a.channel, &cq, &user), 0);
  api().ack_cq_events(a.cq, 2);
  ASSERT_EQ(::fcntl(a.channel->fd, F_SETFL, O_NONBLOCK), 0);
  EXPECT_EQ(api().get_cq_event(a.channel, &cq, &user), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(CompletionQueue, AnEventNobodyTookGoesWithItsQueue) {
  RawPeer peer({.channel = true});
  ASSERT_EQ(ibv_req_notify_cq(peer.device->cq, 0), 0);
  ASSERT_EQ(peer.device->post(IBV_WR_SEND, 1, 0, 1, nullptr, 0), 0);
  ASSERT_EQ(peer.device->to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(peer.device->channel->fd));
  Endpoint& end = *peer.device;
  ASSERT_EQ(api().destroy_qp(std::exchange(end.qp, nullptr)), 0);
  ASSERT_EQ(api().destroy_cq(end.cq), 0);
  EXPECT_FALSE(readable(end.channel->fd)) << "who waits for it would spin";
  end.cq = api().create_cq(end.context, 16, &end, end.channel, 0);
  ASSERT_EQ(ibv_req_notify_cq(end.cq, 0), 0);
}

TEST(Numbers, OfQueuePairsAndKeysAreNotReusedAtOnce) {
  ibv_device entry{};
  ManualClock clock;
  Endpoint end(new Device(entry, Profile::kFull, clock, LoopbackPort::make_pair().first));
  std::uint32_t last_qpn = 0;
  std::uint32_t last_key = 0;
  for (int i = 0; i < 2000; ++i) {
    ibv_qp* qp = end.make_qp({});
    ibv_mr* mr = api().reg_mr(end.pd, end.buffer.data(), 10, 0);
    ASSERT_NE(qp->qp_num, last_qpn);
    ASSERT_NE(mr->rkey, last_key);
    ASSERT_GT(qp->qp_num, 1U);
    ASSERT_LT(qp->qp_num, 0xffffffU);
    last_qpn = qp->qp_num;
    last_key = mr->rkey;
    ASSERT_EQ(api().destroy_qp(qp), 0);
    ASSERT_EQ(api().dereg_mr(mr), 0);
  }
}

}  // namespace
}  // namespace fairlead::soft::test
