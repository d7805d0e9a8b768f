// Completion queues beyond ibv_poll_cq: the extended poll, timestamps, resizing, what is refused.
#include <memory>
#include <utility>

#include "fairlead/log.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

constexpr std::uint64_t kFlags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

// b's completions are read through the extended interface.
class ExtendedCq : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    connect(a, b);
    cq = reinterpret_cast<ibv_cq_ex*>(b.cq);
  }
  void TearDown() override { set_log_level(LogLevel::kWarning); }

  // Sends `count` messages of 10, 20, ... bytes, whose immediates and receive ids count up from 1.
  void send(std::uint64_t count) {
    for (std::uint64_t i = 1; i <= count; ++i) {
      ASSERT_EQ(b.post_recv(i, 0, 1000), 0);
      ASSERT_EQ(a.post(IBV_WR_SEND_WITH_IMM, i, 0, 10 * i, nullptr, 0, 0, static_cast<std::uint32_t>(i)), 0);
    }
  }
  // Lets packets travel; a's polls move both devices' packets, b's are the test's own.
  int start() {
    ibv_poll_cq_attr attr{};
    int error = ENOENT;
    for (int i = 0; i < 1000 && error == ENOENT; ++i) {
      a.poll();
      error = ibv_start_poll(cq, &attr);
      world.clock.advance(kMicrosecond);
    }
    return error;
  }

  Simulation world{{}, {}, {.cqe = 8, .wc_flags = kFlags, .cq_flags = GetParam()}};
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  ibv_cq_ex* cq = nullptr;
};

TEST_P(ExtendedCq, ABatchIsReadOneByOne) {
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  send(3);
  ASSERT_EQ(start(), 0);
  const std::uint64_t first_time = ibv_wc_read_completion_ts(cq);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    if (i > 1) {
      ASSERT_EQ(ibv_next_poll(cq), 0);
    }
    EXPECT_EQ(cq->wr_id, i);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 10 * i);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), i);
    EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_IMM});
    EXPECT_EQ(ibv_wc_read_qp_num(cq), b.qp->qp_num);
    EXPECT_EQ(ibv_wc_read_src_qp(cq), a.qp->qp_num);
    EXPECT_GE(ibv_wc_read_completion_ts(cq), first_time);
    EXPECT_GT(ibv_wc_read_completion_wallclock_ns(cq), 1'600'000'000 * kSecond);
  }
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
}

TEST_P(ExtendedCq, WhatTheBatchDidNotReachStays) {
  send(3);
  ASSERT_EQ(start(), 0);
  ASSERT_EQ(ibv_next_poll(cq), 0);
  ibv_end_poll(cq);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(cq->wr_id, 3U);
  ibv_end_poll(cq);
}

// What is shown is the program's until ibv_end_poll, and what is behind it stays there.
TEST_P(ExtendedCq, AQueuePairMayEndWhileItsCompletionIsShown) {
  ibv_poll_cq_attr attr{};
  ibv_qp* const first_of_a = a.qp;
  ibv_qp* const first_of_b = b.qp;
  const std::uint32_t first_number = first_of_b->qp_num;
  const auto complete = [&] {
    for (int i = 0; i < 100; ++i) {
      a.poll();
      soft::impl(b.context).domain().poll();
      world.clock.advance(kMicrosecond);
    }
  };
  send(2);
  complete();
  a.qp = a.make_qp({});
  b.qp = b.make_qp({});
  connect(a, b);
  send(1);
  complete();
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  EXPECT_EQ(api().destroy_qp(first_of_b), 0);
  EXPECT_EQ(cq->wr_id, 1U);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), first_number);
  ibv_end_poll(cq);
  ASSERT_EQ(ibv_start_poll(cq, &attr), 0);
  EXPECT_EQ(cq->wr_id, 1U);
  EXPECT_EQ(ibv_wc_read_qp_num(cq), b.qp->qp_num);
  EXPECT_EQ(api().destroy_qp(std::exchange(b.qp, nullptr)), 0) << "nothing is behind it";
  EXPECT_EQ(ibv_next_poll(cq), ENOENT);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_start_poll(cq, &attr), ENOENT);
  EXPECT_EQ(api().destroy_qp(first_of_a), 0);
}

TEST_P(ExtendedCq, MayBeResizedAndArmedWhileACompletionIsShown) {
  send(2);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(soft::api::resize_cq(ibv_cq_ex_to_cq(cq), 100), 0) << "by who polls it, without waiting for itself";
  EXPECT_GE(cq->cqe, 100);
  EXPECT_EQ(ibv_req_notify_cq(ibv_cq_ex_to_cq(cq), 0), 0);
  EXPECT_EQ(cq->wr_id, 1U);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 10U) << "it has moved with the others";
  ASSERT_EQ(ibv_next_poll(cq), 0);
  EXPECT_EQ(cq->wr_id, 2U);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), 20U);
  ibv_end_poll(cq);
}

TEST_P(ExtendedCq, PlainPollsWorkToo) {
  send(2);
  ASSERT_TRUE(world.run_until([&] { return b.done.size() == 2; }));
  EXPECT_EQ(b.done[1].wr_id, 2U);
}

TEST_P(ExtendedCq, UnknownAttributesOfAPollAreRefused) {
  ibv_poll_cq_attr attr{1};
  EXPECT_EQ(ibv_start_poll(cq, &attr), EINVAL);
}

TEST_P(ExtendedCq, TimestampsAreTheDevicesClock) {
  ibv_values_ex before{};
  before.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(soft::api::query_rt_values(b.context, &before), 0);
  send(1);
  ASSERT_EQ(start(), 0);
  ibv_values_ex after{};
  after.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(soft::api::query_rt_values(b.context, &after), 0);
  EXPECT_EQ(after.comp_mask, unsigned{IBV_VALUES_MASK_RAW_CLOCK});
  EXPECT_GE(ibv_wc_read_completion_ts(cq), static_cast<std::uint64_t>(before.raw_clock.tv_nsec));
  EXPECT_LE(ibv_wc_read_completion_ts(cq), static_cast<std::uint64_t>(after.raw_clock.tv_nsec));
  ibv_end_poll(cq);
}

INSTANTIATE_TEST_SUITE_P(Locking, ExtendedCq,
                         testing::Values(0, IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN));

class CqSize : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    connect(a, b);
  }
  void TearDown() override { set_log_level(LogLevel::kWarning); }
  // Writes that have completed at a and were not polled.
  void complete(std::uint64_t count) {
    for (std::uint64_t id = 1; id <= count; ++id) ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, id, 0, 8, &b, 0), 0);
    for (int i = 0; i < 100; ++i) {
      soft::impl(a.context).domain().poll();
      b.poll();
      world.clock.advance(kMicrosecond);
    }
  }

  Simulation world{{}, {}, {.cqe = 8}};
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
};

TEST_F(CqSize, ResizingKeepsWhatWaits) {
  complete(6);
  EXPECT_EQ(soft::api::resize_cq(a.cq, 5), EINVAL);
  EXPECT_EQ(a.cq->cqe, 8);
  EXPECT_EQ(soft::api::resize_cq(a.cq, 20), 0);
  EXPECT_EQ(a.cq->cqe, 32);
  complete(20);
  a.poll();
  a.poll();
  EXPECT_EQ(a.done.size(), 26U);
  EXPECT_EQ(a.done[5].wr_id, 6U);
  EXPECT_EQ(a.done[25].wr_id, 20U);
  EXPECT_FALSE(a.overflowed);
  EXPECT_EQ(soft::api::resize_cq(a.cq, 1), 0);
  EXPECT_EQ(a.cq->cqe, 1);
  complete(1);
  a.poll();
  EXPECT_EQ(a.done.size(), 27U);
}

TEST_F(CqSize, AResetQueuePairLeavesNoCompletions) {
  EndpointOptions options;
  ibv_qp* other = a.make_qp(options);  // whose completions stay
  ibv_qp* first = a.qp;
  std::swap(a.qp, other);
  ibv_qp* peer = b.make_qp(options);
  std::swap(b.qp, peer);
  connect(a, b);
  complete(2);
  std::swap(a.qp, other);
  std::swap(b.qp, peer);
  complete(3);
  ASSERT_EQ(a.to_state(IBV_QPS_RESET), 0);
  a.poll();
  ASSERT_EQ(a.done.size(), 2U);
  EXPECT_NE(a.done[0].qp_num, first->qp_num);
  EXPECT_EQ(soft::api::destroy_qp(other), 0);
  EXPECT_EQ(soft::api::destroy_qp(peer), 0);
}

TEST_F(CqSize, SizesAndVectorsOutOfRangeAreRefused) {
  EXPECT_EQ(soft::api::create_cq(a.context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(soft::api::create_cq(a.context, kMaxCompletions + 1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(soft::api::create_cq(a.context, 8, nullptr, nullptr, a.context->num_comp_vectors), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(soft::api::resize_cq(a.cq, 0), EINVAL);
  EXPECT_EQ(soft::api::resize_cq(a.cq, kMaxCompletions + 1), EINVAL);
  ibv_modify_cq_attr moderation{};
  EXPECT_EQ(soft::api::modify_cq(a.cq, &moderation), EOPNOTSUPP);
}

TEST_F(CqSize, UnknownFieldsOfACompletionAreRefused) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 8;
  init.wc_flags = IBV_WC_EX_WITH_CVLAN;
  EXPECT_EQ(soft::api::create_cq_ex(a.context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST(CqOverrun, IsIgnoredWhenAskedTo) {
  Simulation world({}, {},
                   {.cqe = 2, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN, .cq_flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN});
  Endpoint& a = *world.a;
  connect(a, *world.b);
  for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, id, 0, 8, world.b.get(), 0), 0);
  for (int i = 0; i < 100; ++i) {
    soft::impl(a.context).domain().poll();
    world.b->poll();
    world.clock.advance(kMicrosecond);
  }
  a.poll();
  EXPECT_EQ(a.done.size(), 2U);
  EXPECT_FALSE(a.overflowed);
  EXPECT_EQ(a.state(), IBV_QPS_RTS);
}

}  // namespace
}  // namespace fairlead::soft::test
