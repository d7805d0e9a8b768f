// Shared receive queues: who takes what, the events, what is refused.
#include <poll.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "fairlead/log.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

// b's two queue pairs, each with a peer at a, share a receive queue.
class SharedReceiveQueue : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    ibv_srq_init_attr init{};
    init.attr = {8, 2, 0};
    srq = soft::api::create_srq(b.pd, &init);
    ASSERT_NE(srq, nullptr);
    connect_pair(a.qp, b.qp);
    connect_pair(first_a, first_b);
  }
  void TearDown() override {
    for (ibv_qp* qp : {first_a, first_b, a.qp, b.qp}) EXPECT_EQ(soft::api::destroy_qp(qp), 0);
    a.qp = b.qp = nullptr;
    EXPECT_EQ(soft::api::destroy_srq(srq), 0);
    set_log_level(LogLevel::kWarning);
  }

  ibv_qp* make_qp(Endpoint& end, ibv_srq* shared) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.srq = shared;
    init.cap = {16, 16, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    return soft::api::create_qp(end.pd, &init);
  }
  // Makes and connects them; Endpoint's helpers work on its member.
  void connect_pair(ibv_qp*& left, ibv_qp*& right) {
    if (a.qp != nullptr && left == a.qp) {
      EXPECT_EQ(soft::api::destroy_qp(a.qp), 0);
      EXPECT_EQ(soft::api::destroy_qp(b.qp), 0);
    }
    ibv_qp* kept_a = a.qp;
    ibv_qp* kept_b = b.qp;
    ibv_qp* made_a = a.qp = make_qp(a, nullptr);
    ibv_qp* made_b = b.qp = make_qp(b, srq);
    ASSERT_NE(made_b, nullptr);
    connect(a, b, {.rnr_retry = 1, .min_rnr_timer = 1});
    a.qp = kept_a;
    b.qp = kept_b;
    left = made_a;
    right = made_b;
  }
  int post_srq(std::uint64_t id) {
    ibv_sge segment = b.sge(100 * id, 100);
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  int send(ibv_qp* through, std::uint64_t id) {
    std::swap(a.qp, through);
    const int error = a.post(IBV_WR_SEND, id, 0, 50, nullptr, 0);
    std::swap(a.qp, through);
    return error;
  }
  bool next_event(Endpoint& of, ibv_async_event& event) {
    pollfd fd{of.context->async_fd, POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1 && soft::api::get_async_event(of.context, &event) == 0;
  }

  Simulation world;
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  ibv_srq* srq = nullptr;
  ibv_qp* first_a = nullptr;
  ibv_qp* first_b = nullptr;
};

TEST_F(SharedReceiveQueue, EveryQueuePairTakesTheOldestRequest) {
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(post_srq(id), 0);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    ASSERT_EQ(send(id % 2 == 0 ? a.qp : first_a, id), 0);
    ASSERT_TRUE(world.run_until([&] { return b.done.size() == id; }));
    EXPECT_EQ(b.done.back().wr_id, id);
    EXPECT_EQ(b.done.back().qp_num, id % 2 == 0 ? b.qp->qp_num : first_b->qp_num);
    EXPECT_EQ(b.done.back().byte_len, 50U);
  }
}

TEST_F(SharedReceiveQueue, AnEmptyOneIsNotReady) {
  ASSERT_EQ(send(a.qp, 1), 0);
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_GE(b.counter("send_rnr_err"), 2U);
}

TEST_F(SharedReceiveQueue, TheLimitRaisesOneEvent) {
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(post_srq(id), 0);
  ibv_srq_attr attr{0, 0, 3};
  ASSERT_EQ(soft::api::modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ibv_srq_attr now{};
  ASSERT_EQ(soft::api::query_srq(srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 3U);
  ibv_async_event event{};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_EQ(send(a.qp, id), 0);
    ASSERT_TRUE(world.run_until([&] { return b.done.size() == id; }));
    EXPECT_EQ(next_event(b, event), id == 2) << id;
  }
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  soft::api::ack_async_event(&event);
  ASSERT_EQ(soft::api::query_srq(srq, &now), 0);
  EXPECT_EQ(now.srq_limit, 0U);
}

TEST_F(SharedReceiveQueue, ALimitThatIsReachedAlreadyRaisesItsEventAtOnce) {
  ibv_async_event event{};
  for (const std::uint64_t there : {0U, 1U}) {
    if (there == 1) {
      ASSERT_EQ(post_srq(1), 0);
    }
    ibv_srq_attr attr{0, 0, 2};
    ASSERT_EQ(soft::api::modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_TRUE(next_event(b, event)) << there;
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    soft::api::ack_async_event(&event);
    EXPECT_FALSE(next_event(b, event)) << "one";
  }
}

TEST_F(SharedReceiveQueue, AFailingQueuePairTakesNothingFromIt) {
  ASSERT_EQ(post_srq(1), 0);
  ASSERT_EQ(b.to_state(IBV_QPS_ERR), 0);
  ibv_async_event event{};
  ASSERT_TRUE(next_event(b, event));
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, b.qp);
  soft::api::ack_async_event(&event);
  b.poll();
  EXPECT_TRUE(b.done.empty());
  ASSERT_EQ(send(first_a, 2), 0);
  ASSERT_TRUE(world.run_until([&] { return b.done.size() == 1; }));
  EXPECT_EQ(b.done[0].wr_id, 1U);
}

TEST_F(SharedReceiveQueue, ResizingKeepsWhatIsQueued) {
  for (std::uint64_t id = 1; id <= 8; ++id) ASSERT_EQ(post_srq(id), 0);
  EXPECT_EQ(post_srq(9), ENOMEM);
  ibv_srq_attr attr{4, 0, 0};
  EXPECT_EQ(soft::api::modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.max_wr = 12;
  ASSERT_EQ(soft::api::modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
  ASSERT_EQ(soft::api::query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.max_wr, 16U);
  EXPECT_EQ(attr.max_sge, 2U);
  EXPECT_EQ(post_srq(9), 0);
  for (std::uint64_t id = 1; id <= 9; ++id) ASSERT_EQ(send(a.qp, id), 0);
  ASSERT_TRUE(world.run_until([&] { return b.done.size() == 9; }));
  EXPECT_EQ(b.done[8].wr_id, 9U);
}

TEST_F(SharedReceiveQueue, WhatAQueuePairSaysOfReceivingIsIgnored) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = b.cq;
  init.srq = srq;
  init.cap = {1, ~0U, 1, ~0U, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = soft::api::create_qp(b.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(init.cap.max_recv_wr, 0U);
  EXPECT_EQ(soft::api::destroy_qp(qp), 0);
}

TEST_F(SharedReceiveQueue, WrongUseIsRefused) {
  EXPECT_EQ(soft::api::destroy_srq(srq), EBUSY);
  EXPECT_EQ(b.post_recv(1, 0, 10), EINVAL);  // a queue pair with a shared queue has none of its own
  ibv_srq_attr attr{0, 0, 9};
  EXPECT_EQ(soft::api::modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  ibv_srq_init_attr init{};
  init.attr = {0, 1, 0};
  EXPECT_EQ(soft::api::create_srq(b.pd, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_srq_init_attr_ex extended{};
  extended.attr = {1, 1, 0};
  extended.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  extended.pd = b.pd;
  extended.srq_type = IBV_SRQT_XRC;
  EXPECT_EQ(soft::api::create_srq_ex(b.context, &extended), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  extended.srq_type = IBV_SRQT_BASIC;
  ibv_srq* basic = soft::api::create_srq_ex(b.context, &extended);
  ASSERT_NE(basic, nullptr);
  std::uint32_t numbers[2]{};
  EXPECT_EQ(soft::api::get_srq_num(basic, &numbers[0]), 0);
  EXPECT_EQ(soft::api::get_srq_num(srq, &numbers[1]), 0);
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_EQ(soft::api::destroy_srq(basic), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
