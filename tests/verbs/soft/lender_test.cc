// Payload that is sent from where it lies: when requests complete and memory is given up, with a device that keeps what
// it was lent until the test lets it go.
#include "verbs/soft/qp/lender.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/verbs/soft/endpoint.h"
#include "tests/verbs/soft/segment.h"
#include "verbs/soft/port/frame/frame_port.h"

namespace fairlead::soft::test {
namespace {

class LenderTest : public testing::Test {
 protected:
  LenderTest() {
    a = station(1);
    b = station(2);
  }
  void join(const EndpointOptions& options = {}) {
    ends[0] = std::make_unique<Endpoint>(a.opened, options);
    ends[1] = std::make_unique<Endpoint>(b.opened, options);
    connect(*ends[0], *ends[1], {.timeout = 10});
    fill_pattern(from().buffer, 7);
    run();
  }
  [[nodiscard]] Endpoint& from() { return *ends[0]; }
  [[nodiscard]] Endpoint& to() { return *ends[1]; }
  int write(std::uint64_t id, std::size_t bytes, unsigned flags = IBV_SEND_SIGNALED) {
    return from().post(IBV_WR_RDMA_WRITE, id, 0, bytes, &to(), 0, flags);
  }
  /// Long enough for packets and their acknowledgements, too short for a timeout.
  void run(Nanos time = kMillisecond) {
    for (const Nanos end = clock.now() + time; clock.now() < end; clock.advance(20 * kMicrosecond)) {
      for (const auto& each : ends) {
        if (each) each->poll();
      }
    }
  }
  /// The ids of what has completed, each with its status.
  std::vector<std::pair<std::uint64_t, ibv_wc_status>> done() {
    std::vector<std::pair<std::uint64_t, ibv_wc_status>> all;
    for (const ibv_wc& each : from().done) all.emplace_back(each.wr_id, each.status);
    return all;
  }
  using Done = std::vector<std::pair<std::uint64_t, ibv_wc_status>>;

  struct Station {
    MemoryDevice* device = nullptr;
    Device* opened = nullptr;
  };
  Station station(std::uint8_t number) {
    auto device = std::make_unique<MemoryDevice>(segment, number, 4200, 0, true);
    Station made{device.get()};
    const FramePortConfig config{Gid::from_ipv4(0x0a000000U + number), 24, {}};
    made.opened =
        new Device(entry, Profile::kFull, clock, std::make_unique<FramePort>(std::move(device), config, clock.now()));
    return made;
  }

  ManualClock clock;
  ibv_device entry{};
  Segment segment;
  Station a;
  Station b;
  std::unique_ptr<Endpoint> ends[2];
};

TEST_F(LenderTest, ARequestCompletesOnceTheDeviceHasLetGo) {
  join();
  a.device->keeps_loans = true;
  ASSERT_EQ(write(1, 3000), 0);
  run();
  EXPECT_EQ(a.device->open_loans.size(), 3U);
  EXPECT_EQ(std::memcmp(from().buffer.data(), to().buffer.data(), 3000), 0);
  EXPECT_EQ(done(), Done{});
  a.device->let_go(2);
  a.device->let_go(0);
  run();
  EXPECT_EQ(done(), Done{});
  a.device->let_go(0);
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, WhatCompletesLaterStaysBehind) {
  join({.max_inline = 64});
  a.device->keeps_loans = true;
  ASSERT_EQ(write(1, 1000), 0);
  ASSERT_EQ(write(2, 8, IBV_SEND_SIGNALED | IBV_SEND_INLINE), 0);
  ASSERT_EQ(from().post(IBV_WR_RDMA_READ, 3, 2000, 100, &to(), 0), 0);
  run();
  EXPECT_EQ(a.device->open_loans.size(), 1U);
  EXPECT_EQ(done(), Done{});
  a.device->let_go();
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}, {3, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, AnEarlierCopyOfAPacketCountsToo) {
  join();
  a.device->keeps_loans = true;
  b.device->up = false;  // what comes is lost
  ASSERT_EQ(write(1, 1000), 0);
  run();
  ASSERT_EQ(a.device->open_loans.size(), 1U);
  b.device->up = true;
  run(20 * kMillisecond);
  ASSERT_EQ(a.device->open_loans.size(), 2U);
  a.device->let_go(1);
  run();
  EXPECT_EQ(done(), Done{});
  a.device->let_go(0);
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, FlushedRequestsWaitToo) {
  join();
  a.device->keeps_loans = true;
  b.device->up = false;
  ASSERT_EQ(write(1, 1000), 0);
  ASSERT_EQ(from().to_state(IBV_QPS_ERR), 0);
  run();
  EXPECT_EQ(done(), Done{});
  a.device->let_go();
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_WR_FLUSH_ERR}}));
}

TEST_F(LenderTest, ARequestWithoutAnswersWaitsToo) {
  join({.type = IBV_QPT_UC});
  a.device->keeps_loans = true;
  ASSERT_EQ(write(1, 1000), 0);
  run();
  EXPECT_EQ(done(), Done{});
  a.device->let_go();
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, TheQueueIsDrainedOnceItsRequestsHaveCompleted) {
  join();
  a.device->keeps_loans = true;
  ASSERT_EQ(write(1, 1000), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(api().modify_qp(from().qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  run();
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(from().qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.sq_draining, 1);
  a.device->let_go();
  run();
  ASSERT_EQ(api().query_qp(from().qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.sq_draining, 0);
}

TEST_F(LenderTest, MemoryIsGivenUpOnceNothingLooksAtIt) {
  join();
  EXPECT_EQ(a.device->mapped.size(), 1U);
  a.device->keeps_loans = true;
  ASSERT_EQ(write(1, 1000), 0);
  run();
  ASSERT_EQ(api().dereg_mr(std::exchange(from().mr, nullptr)), 0);
  EXPECT_EQ(a.device->forced, 1);
  EXPECT_TRUE(a.device->mapped.empty());
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, AQueuePairThatEndsTakesItsLoansAlong) {
  join();
  for (const bool destroy : {false, true}) {
    a.device->keeps_loans = true;
    ASSERT_EQ(write(1, 1000), 0);
    run();
    ASSERT_EQ(a.device->open_loans.size(), 1U);
    if (destroy) {
      ASSERT_EQ(api().destroy_qp(std::exchange(from().qp, nullptr)), 0);
    } else {
      ASSERT_EQ(from().to_state(IBV_QPS_RESET), 0);
    }
    EXPECT_TRUE(a.device->open_loans.empty());
    run();
    EXPECT_EQ(done(), Done{});
    if (destroy) break;
    ASSERT_EQ(to().to_state(IBV_QPS_RESET), 0);
    connect(from(), to(), {.timeout = 10});
  }
}

TEST_F(LenderTest, WhatTheDeviceDoesNotTakeIsCopied) {
  join();
  a.device->keeps_loans = true;
  a.device->attaching = false;
  ASSERT_EQ(write(1, 3000), 0);
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
  EXPECT_EQ(std::memcmp(from().buffer.data(), to().buffer.data(), 3000), 0);
}

// Nobody has promised to leave it alone.
TEST_F(LenderTest, WhatAPeerReadsIsCopied) {
  join();
  b.device->keeps_loans = true;
  ASSERT_EQ(from().post(IBV_WR_RDMA_READ, 1, 0, 3000, &to(), 0), 0);
  run();
  EXPECT_EQ(done(), (Done{{1, IBV_WC_SUCCESS}}));
  EXPECT_TRUE(b.device->open_loans.empty());
}

TEST_F(LenderTest, AFewPiecesAndPadding) {
  join();
  ibv_sge list[3] = {from().sge(5, 700), from().sge(9001, 33), from().sge(3, 1000)};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = list;
  wr.num_sge = 3;
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to().buffer.data());
  wr.wr.rdma.rkey = to().mr->rkey;
  a.device->keeps_loans = true;
  ASSERT_EQ(ibv_post_send(from().qp, &wr, &bad), 0);
  run();
  EXPECT_EQ(a.device->open_loans.size(), 2U);
  const std::uint8_t* at = to().buffer.data();
  for (const ibv_sge& each : list) {
    EXPECT_EQ(std::memcmp(at, reinterpret_cast<const void*>(each.addr), each.length), 0);  // NOLINT
    at += each.length;
  }
  a.device->let_go();
  run();
  EXPECT_EQ(done(), (Done{{0, IBV_WC_SUCCESS}}));
}

TEST_F(LenderTest, MemoryThatIsGoneFailsTheRequest) {
  join();
  void* const gone = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = api().reg_mr(from().pd, gone, 8192, 0);
  ASSERT_NE(mr, nullptr);
  ::munmap(gone, 8192);
  ibv_sge segment{reinterpret_cast<std::uint64_t>(gone), 4000, mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &segment;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to().buffer.data());
  wr.wr.rdma.rkey = to().mr->rkey;
  ASSERT_EQ(ibv_post_send(from().qp, &wr, &bad), 0);
  run();
  EXPECT_EQ(done(), (Done{{0, IBV_WC_LOC_PROT_ERR}}));
  EXPECT_EQ(api().dereg_mr(mr), 0);
}

TEST(LoanBook, EndsInAnyOrder) {
  LoanBook book;
  EXPECT_FALSE(book.loans().open());
  for (std::uint64_t number = 1; number <= 4; ++number) EXPECT_EQ(book.make(), number);
  book.end(3);
  EXPECT_EQ(book.loans().ended, 0U);
  book.end(1);
  EXPECT_EQ(book.loans().ended, 1U);
  book.end(2);
  EXPECT_EQ(book.loans().ended, 3U);
  book.end(4);
  EXPECT_FALSE(book.loans().open());
}

}  // namespace
}  // namespace fairlead::soft::test
