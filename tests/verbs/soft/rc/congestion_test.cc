// Congestion control on the device's own code: several senders, one bottleneck that marks, a clock that the test moves.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "tests/verbs/soft/switch.h"
#include "verbs/soft/api/objects.h"

namespace fairlead::soft::test {
namespace {

struct Outcome {
  double jain = 0;         // Jain's fairness index of the senders' bytes
  double utilization = 0;  // of the bottleneck
  std::size_t most_queued = 0;
  std::uint64_t dropped = 0;
  std::uint64_t notifications = 0;
};

// Every sender keeps WRITEs in flight to a queue pair of its own at the receiver. Measured after the first half.
Outcome many_to_one(std::size_t senders, bool dcqcn, Nanos time) {
  const SwitchConfig config;
  ManualClock clock;
  Switch net(clock, config, senders + 1);
  ibv_device entry{};
  constexpr std::size_t kBytes = 64 << 10;
  constexpr std::size_t kDepth = 8;
  std::vector<std::unique_ptr<Endpoint>> from;
  std::vector<std::unique_ptr<Endpoint>> to;
  const auto make = [&](std::size_t port) {
    auto* device = new Device(entry, Profile::kFull, clock, net.port(port));
    if (dcqcn) device->set_congestion(DcqcnConfig{.line_rate = config.rate});
    return device;
  };
  // The receiver is one device: its queue pairs share it through the first endpoint.
  auto receiver = std::make_unique<Endpoint>(&make(senders)->context, EndpointOptions{.buffer_bytes = kBytes});
  std::vector<ibv_qp*> qps{receiver->qp};
  for (std::size_t i = 1; i < senders; ++i) qps.push_back(receiver->make_qp({}));
  for (std::size_t i = 0; i < senders; ++i) {
    from.push_back(std::make_unique<Endpoint>(&make(i)->context, EndpointOptions{.buffer_bytes = kBytes}));
    receiver->qp = qps[i];
    connect(*from[i], *receiver, {.mtu = IBV_MTU_4096});
  }
  std::vector<std::uint64_t> posted(senders, 0);
  std::vector<std::uint64_t> at_half(senders, 0);
  const Nanos begin = clock.now();
  bool second_half = false;
  while (clock.now() < begin + time) {
    for (std::size_t i = 0; i < senders; ++i) {
      for (; posted[i] - from[i]->done.size() < kDepth; ++posted[i]) {
        EXPECT_EQ(from[i]->post(IBV_WR_RDMA_WRITE, posted[i], 0, kBytes, receiver.get(), 0), 0);
      }
      from[i]->poll();
    }
    receiver->poll();
    clock.advance(2 * kMicrosecond);
    if (!second_half && clock.now() >= begin + time / 2) {
      second_half = true;
      net.reset_most();
      for (std::size_t i = 0; i < senders; ++i) at_half[i] = from[i]->done.size();
    }
  }
  Outcome outcome;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < senders; ++i) {
    const auto bytes = static_cast<double>((from[i]->done.size() - at_half[i]) * kBytes);
    sum += bytes;
    squares += bytes * bytes;
    outcome.notifications += from[i]->counter("rp_cnp_handled");
    for (const ibv_wc& completion : from[i]->done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
  }
  outcome.jain = sum * sum / (static_cast<double>(senders) * squares);
  outcome.utilization = sum * 8 / (static_cast<double>(time / 2) * 1e-9) / config.rate;
  outcome.most_queued = net.most_queued();
  outcome.dropped = net.dropped();
  from.clear();
  for (std::size_t i = 1; i < senders; ++i) EXPECT_EQ(api().destroy_qp(qps[i]), 0);
  receiver->qp = qps[0];
  return outcome;
}

std::string describe(const Outcome& outcome) {
  return "Jain " + std::to_string(outcome.jain) + ", utilization " + std::to_string(outcome.utilization) + ", queue " +
         std::to_string(outcome.most_queued) + ", dropped " + std::to_string(outcome.dropped) + ", notifications " +
         std::to_string(outcome.notifications);
}

TEST(Congestion, WithoutControlTheQueueHoldsEveryWindow) {
  const Outcome outcome = many_to_one(4, false, 40 * kMillisecond);
  SCOPED_TRACE(describe(outcome));
  EXPECT_GT(outcome.most_queued, 600'000U);  // four windows of 192 KiB
  EXPECT_EQ(outcome.notifications, 0U);
}

class CongestionSenders : public testing::TestWithParam<std::size_t> {};

TEST_P(CongestionSenders, ShareTheBottleneckFairlyAndKeepItsQueueShort) {
  const Outcome outcome = many_to_one(GetParam(), true, 100 * kMillisecond);
  SCOPED_TRACE(describe(outcome));
  RecordProperty("outcome", describe(outcome));
  EXPECT_GE(outcome.jain, 0.95);
  EXPECT_GE(outcome.utilization, 0.9);
  EXPECT_LE(outcome.most_queued, 300'000U);  // a little above Kmax, from where on every packet is marked
  EXPECT_EQ(outcome.dropped, 0U);
  EXPECT_GT(outcome.notifications, 0U);
}

// The other half of the wire format: marks on real sockets. Whoever marks is a sender that claims to have been marked.
TEST(Congestion, MarksOnASocketBecomeNotificationsAndALowerRate) {
  ::setenv("FAIRLEAD_SOFT_CONGESTION", "dcqcn", 1);
  Endpoint a(open_on_wire());
  Endpoint b(open_on_wire());
  ::unsetenv("FAIRLEAD_SOFT_CONGESTION");
  connect(a, b);
  Qp& qp = impl(a.qp);
  EXPECT_EQ(qp.route.traffic_class, 2);  // ECT(0): may be marked
  qp.route.traffic_class = 3;
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 1'000'000, &b, 0), 0);
  ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  EXPECT_GE(b.counter("np_ecn_marked_roce_packets"), 8U);  // of two that have met, one refers to 128 KiB
  EXPECT_GT(b.counter("np_cnp_sent"), 0U);
  EXPECT_GT(a.counter("rp_cnp_handled"), 0U);
  EXPECT_LT(qp.congestion->reaction.alpha(), 1.0);
}

TEST(Congestion, IsOffOnLoopbackAndIgnoresNotificationsThen) {
  EXPECT_FALSE(choose_congestion(CongestionMode::kAuto, {.gid = {}, .interface = "lo", .loopback = true}));
  EXPECT_TRUE(choose_congestion(CongestionMode::kAuto, {.gid = {}, .interface = "eth0", .loopback = false}));
  EXPECT_TRUE(choose_congestion(CongestionMode::kDcqcn, {.gid = {}, .interface = "lo", .loopback = true}));
  EXPECT_FALSE(choose_congestion(CongestionMode::kOff, {.gid = {}, .interface = "eth0", .loopback = false}));
  EXPECT_FALSE(parse_congestion_mode("timely"));
}

// At 4 Gb/s after the first notification, a megabyte takes two milliseconds, whichever side it leaves from.
TEST(Congestion, WritesAndReadResponsesKeepToTheRate) {
  constexpr std::size_t kBytes = 1'000'000;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Simulation world;
    Endpoint& sender = opcode == IBV_WR_RDMA_READ ? *world.b : *world.a;
    impl(sender.context).set_congestion(DcqcnConfig{.line_rate = 8e9, .increase_interval = 100 * kSecond});
    connect(*world.a, *world.b);
    impl(sender.qp).congestion->reaction.on_notification(world.clock.now());
    const Nanos begin = world.clock.now();
    fill_pattern(sender.buffer, 3);
    ASSERT_EQ(world.a->post(opcode, 1, 0, kBytes, world.b.get(), 0), 0);
    ASSERT_TRUE(world.run_until([&] { return world.a->done.size() == 1; }));
    EXPECT_EQ(std::memcmp(world.a->buffer.data(), world.b->buffer.data(), kBytes), 0);
    EXPECT_GT(world.clock.now() - begin, 1800 * kMicrosecond);
    EXPECT_LT(world.clock.now() - begin, 3 * kMillisecond);
  }
}

// Whose answers wait for their time has nothing to do before, though an acknowledgement is owed behind them.
TEST(Congestion, AnswersThatAreToWaitLeaveNothingToDo) {
  constexpr std::uint32_t kBytes = 200'000;
  constexpr std::uint32_t kPackets = (kBytes + 1023) / 1024;
  RawPeer peer;
  Qp& qp = impl(peer.device->qp);
  Domain& domain = impl(peer.device->context).domain();
  qp.congestion =
      std::make_unique<CongestionControl>(DcqcnConfig{.line_rate = 8e9, .increase_interval = 100 * kSecond});
  qp.congestion->reaction.on_notification(peer.clock.now());
  peer.put({.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = peer.target(0, kBytes)});
  peer.put({.opcode = Opcode::kWriteOnly,
            .psn = peer.psn + kPackets,
            .payload = RawPeer::payload(8, 1),
            .reth = peer.target(kBytes, 8)});
  unsigned waits = 0;
  std::vector<Seen> seen;
  for (int round = 0; round < 1000 && seen.size() <= kPackets; ++round) {
    for (int look = 0; look < 3; ++look) std::ranges::move(peer.receive(), std::back_inserter(seen));
    if (qp.receive.ack_due && qp.paced_until > peer.clock.now()) {
      ++waits;
      EXPECT_GT(domain.next_deadline(), peer.clock.now());
    }
    peer.clock.advance(20 * kMicrosecond);
  }
  EXPECT_GT(waits, 0U);
  ASSERT_EQ(seen.size(), kPackets + 1);
  EXPECT_EQ(seen[kPackets - 1].opcode, Opcode::kReadResponseLast);
  EXPECT_EQ(seen[kPackets].opcode, Opcode::kAcknowledge) << "behind the answers";
  EXPECT_EQ(seen[kPackets].psn, peer.psn + kPackets);
}

INSTANTIATE_TEST_SUITE_P(Number, CongestionSenders, testing::Values(2, 4, 8), testing::PrintToStringParamName());

}  // namespace
}  // namespace fairlead::soft::test
