// A window that follows the way: no queue beyond a target, no overflow, and a long way filled, whatever the peer's
// buffer is.
#include "verbs/soft/flow_control/delay_target.h"

#include "tests/verbs/soft/simulation.h"
#include "tests/verbs/soft/switch.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kStock = 192 << 10;
constexpr Nanos kWay = 1 * kMillisecond;

void take_rounds(Window& window, unsigned rounds, Nanos took) {
  for (unsigned i = 0; i < rounds * DelayTarget::kSamples; ++i)
    window.follow(window.delay, window.delay.on_round_trip(took));
}

TEST(DelayTarget, OneLongRoundTripAmongSeveralIsNoQueue) {
  DelayTarget target;
  for (unsigned i = 0; i + 1 < DelayTarget::kSamples; ++i) {
    EXPECT_EQ(target.on_round_trip(i == 1 ? kSecond : kWay), DelayTarget::Verdict::kUnknown);
  }
  EXPECT_EQ(target.on_round_trip(kWay), DelayTarget::Verdict::kRoom);
}

TEST(DelayTarget, WhatAllOfThemTakeBeyondTheTargetIsExcess) {
  DelayTarget target;
  for (unsigned i = 0; i < DelayTarget::kSamples; ++i) std::ignore = target.on_round_trip(kWay);
  DelayTarget::Verdict verdict{};
  for (unsigned i = 0; i < DelayTarget::kSamples; ++i) {
    verdict = target.on_round_trip(2 * (kWay + DelayTarget::kTarget));
  }
  EXPECT_EQ(verdict, DelayTarget::Verdict::kFull);
  EXPECT_DOUBLE_EQ(target.excess(), 0.5);
}

TEST(DelayTarget, ARoundTripWithinOneReadingOfTheClockIsTheShortest) {
  DelayTarget target;
  std::ignore = target.on_round_trip(0);
  for (unsigned i = 1; i < DelayTarget::kSamples; ++i) std::ignore = target.on_round_trip(100 * kWay);
  EXPECT_EQ(target.excess(), 0.0);
  DelayTarget::Verdict verdict{};
  for (unsigned i = 0; i < DelayTarget::kSamples; ++i) verdict = target.on_round_trip(100 * kWay);
  EXPECT_EQ(verdict, DelayTarget::Verdict::kFull);
  EXPECT_GT(target.excess(), 0.9);
}

TEST(WindowDelays, NeverTakeItBelowWhatAnyPeerHolds) {
  Window window(kStock);
  window.announce(4 << 20);
  window.on_acknowledged(8 << 20);
  ASSERT_EQ(window.limit(), std::size_t{4} << 20);
  take_rounds(window, 1, kWay);
  take_rounds(window, 1, 100 * kWay);
  EXPECT_EQ(window.limit(), std::size_t{2} << 20);  // by half, at most
  take_rounds(window, 20, 100 * kWay);
  EXPECT_EQ(window.limit(), kStock);
}

TEST(WindowDelays, ThatLastWithLittleOnItsWayAreTheWaysOwn) {
  Window window(kStock);
  window.announce(4 << 20);
  take_rounds(window, 1, kWay);
  take_rounds(window, 64, 10 * kWay);
  EXPECT_EQ(window.limit(), kStock);
  take_rounds(window, 1, 10 * kWay);
  window.on_acknowledged(kStock);
  EXPECT_GT(window.limit(), kStock);
}

TEST(WindowDelays, OnlyWhatIsWaitedForGrowsBeyondWhatWasAnnounced) {
  Window window(kStock);
  take_rounds(window, 1, kWay);
  window.force(kStock);
  window.on_acknowledged(kStock);
  EXPECT_EQ(window.limit(), kStock);
  Link<Qp> line{nullptr};
  window.wait(line);
  window.on_acknowledged(kStock);
  EXPECT_GT(window.limit(), kStock);
  window.give_back(kStock);
  window.force(1);  // nothing was on its way: it begins anew
  EXPECT_EQ(window.limit(), kStock);
}

constexpr std::size_t kBytes = 1 << 20;
constexpr std::uint64_t kDepth = 16;

struct Flow {
  double utilization = 0;  // of the link, in the second half
  std::size_t most_queued = 0;
  std::uint64_t dropped = 0;       // from the first packet on
  std::uint64_t dropped_late = 0;  // in the second half
};

// One queue pair with 1 MiB WRITEs, or READs, under way all the time.
Flow run(const SwitchConfig& config, Nanos time, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
  ManualClock clock;
  Switch net(clock, config, 2);
  ibv_device entry{};
  const auto make = [&](std::size_t port) {
    return &(new Device(entry, Profile::kFull, clock, net.port(port)))->context;
  };
  Endpoint a(make(0), EndpointOptions{.buffer_bytes = kBytes});
  Endpoint b(make(1), EndpointOptions{.buffer_bytes = kBytes});
  connect(a, b, {.mtu = IBV_MTU_4096});
  Flow flow;
  std::uint64_t posted = 0, at_half = 0;
  const Nanos begin = clock.now();
  while (clock.now() < begin + time) {
    for (; posted - a.done.size() < kDepth; ++posted) {
      EXPECT_EQ(a.post(opcode, posted, 0, kBytes, &b, 0), 0);
    }
    a.poll();
    b.poll();
    clock.advance(5 * kMicrosecond);
    if (at_half == 0 && clock.now() >= begin + time / 2) {
      at_half = a.done.size();
      flow.dropped_late = net.dropped();
      net.reset_most();
    }
  }
  for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  flow.utilization = static_cast<double>((a.done.size() - at_half) * kBytes) * 8 /
                     (static_cast<double>(time / 2) * 1e-9) / config.rate;
  flow.most_queued = net.most_queued();
  flow.dropped = net.dropped();
  flow.dropped_late = flow.dropped - flow.dropped_late;
  return flow;
}

std::string describe(const Flow& flow) {
  return "utilization " + std::to_string(flow.utilization) + ", queue " + std::to_string(flow.most_queued) +
         ", dropped " + std::to_string(flow.dropped) + ", of which late " + std::to_string(flow.dropped_late);
}

// A switch of 1 Gbit/s whose port holds far less than the peer would take.
TEST(DelayTargetSim, AShortQueueDoesNotOverflow) {
  const Flow flow = run({.rate = 1e9, .delay = 50 * kMicrosecond, .buffer = 512 << 10, .far_window = 4 << 20}, kSecond);
  SCOPED_TRACE(describe(flow));
  EXPECT_GT(flow.utilization, 0.9);
  EXPECT_EQ(flow.dropped_late, 0U);
}

// 5 Gbit/s and 2 ms there and back are 1.25 MB; the peer's buffer is that of a stock system.
TEST(DelayTargetSim, ALongWayIsFilledBeyondThePeersBuffer) {
  const Flow flow = run({.rate = 5e9, .delay = 1 * kMillisecond, .buffer = 8 << 20, .far_window = kStock}, kSecond);
  SCOPED_TRACE(describe(flow));
  EXPECT_GT(flow.utilization, 0.9);
  EXPECT_EQ(flow.dropped, 0U);
}

TEST(DelayTargetSim, ALongWayBackIsFilledByReads) {
  const Flow flow =
      run({.rate = 5e9, .delay = 1 * kMillisecond, .buffer = 8 << 20, .far_window = kStock}, kSecond, IBV_WR_RDMA_READ);
  SCOPED_TRACE(describe(flow));
  EXPECT_GT(flow.utilization, 0.9);
  EXPECT_EQ(flow.dropped, 0U);
}

TEST(DelayTargetSim, ReadsDoNotOverflowAShortQueue) {
  const Flow flow = run({.rate = 1e9, .delay = 50 * kMicrosecond, .buffer = 512 << 10, .far_window = 4 << 20}, kSecond,
                        IBV_WR_RDMA_READ);
  SCOPED_TRACE(describe(flow));
  EXPECT_GT(flow.utilization, 0.9);
  EXPECT_EQ(flow.dropped_late, 0U);
}

// What the switch holds is less than what is announced, and than what the way holds.
TEST(DelayTargetSim, ALongWayBehindAShortQueueIsFilledAllTheSame) {
  const Flow flow = run({.rate = 5e9, .delay = 1 * kMillisecond, .buffer = 1 << 20, .far_window = 4 << 20}, kSecond);
  SCOPED_TRACE(describe(flow));
  EXPECT_GT(flow.utilization, 0.9);
  EXPECT_EQ(flow.dropped_late, 0U);
}

}  // namespace
}  // namespace fairlead::soft::test
