// Random work over bad networks: every byte arrives, every request completes once and in order.
#include <map>
#include <random>
#include <string>
#include <utility>

#include "tests/verbs/soft/simulation.h"
#include "tests/verbs/soft/switch.h"
#include "verbs/soft/port/port_decorator.h"

namespace fairlead::soft::test {
namespace {

struct Fault {
  const char* name;
  FaultConfig config;
};

class Faults : public testing::TestWithParam<Fault> {};

// Every operation writes a range of its own, so that each can be checked at the end.
TEST_P(Faults, MixedWorkIsExactlyOnceAndIntact) {
  FaultConfig one = GetParam().config;
  FaultConfig other = one;
  other.seed = one.seed + 1000;
  Simulation world(one, other, {.buffer_bytes = 5 << 20});
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b, {.mtu = IBV_MTU_1024, .rnr_retry = 7, .min_rnr_timer = 1});
  fill_pattern(a.buffer, 1);
  fill_pattern(b.buffer, 2);
  const std::vector<std::uint8_t> a_before = a.buffer;
  const std::vector<std::uint8_t> b_before = b.buffer;

  struct Op {
    ibv_wr_opcode opcode;
    std::size_t offset;
    std::size_t length;
    std::uint64_t receive = 0;
  };
  constexpr std::size_t kSlot = 24'000;
  constexpr std::size_t kOps = 200;
  std::mt19937 random(42);
  std::vector<Op> ops;
  std::uint64_t receives = 0;
  for (std::size_t i = 0; i < kOps; ++i) {
    static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM};
    Op op{kOpcodes[random() % 5], i * kSlot, random() % 4 == 0 ? random() % kSlot : random() % 3000};
    if (op.opcode != IBV_WR_RDMA_WRITE && op.opcode != IBV_WR_RDMA_READ) op.receive = ++receives;
    ops.push_back(op);
  }
  std::size_t posted = 0;
  std::size_t received_posted = 0;
  std::vector<std::size_t> receive_ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    if (ops[i].receive != 0) receive_ops.push_back(i);
  }
  const auto feed = [&] {
    while (posted < kOps && posted - a.done.size() < 64) {
      const Op& op = ops[posted];
      ASSERT_EQ(a.post(op.opcode, posted, op.offset, op.length, &b, op.offset, IBV_SEND_SIGNALED,
                       static_cast<std::uint32_t>(posted)),
                0);
      ++posted;
    }
    // Receives come late now and then, so that the peer is told to wait.
    while (received_posted < receive_ops.size() && received_posted - b.done.size() < 4 && random() % 8 == 0) {
      const Op& op = ops[receive_ops[received_posted]];
      ASSERT_EQ(b.post_recv(receive_ops[received_posted], op.offset, kSlot), 0);
      ++received_posted;
    }
  };
  ASSERT_TRUE(world.run_until(
      [&] {
        feed();
        return a.done.size() == kOps && b.done.size() == receive_ops.size();
      },
      600 * kSecond))
      << a.done.size() << " of " << kOps << ", " << b.done.size() << " of " << receive_ops.size();
  world.run_for(200 * kMillisecond);  // nothing more may come
  ASSERT_EQ(a.done.size(), kOps);
  ASSERT_EQ(b.done.size(), receive_ops.size());

  for (std::size_t i = 0; i < kOps; ++i) {
    SCOPED_TRACE(i);
    const Op& op = ops[i];
    ASSERT_EQ(a.done[i].wr_id, i);
    ASSERT_EQ(a.done[i].status, IBV_WC_SUCCESS);
    const auto& source = op.opcode == IBV_WR_RDMA_READ ? b_before : a_before;
    const auto& target = op.opcode == IBV_WR_RDMA_READ ? a.buffer : b.buffer;
    const auto& untouched = op.opcode == IBV_WR_RDMA_READ ? a_before : b_before;
    ASSERT_EQ(std::memcmp(&target[op.offset], &source[op.offset], op.length), 0);
    ASSERT_EQ(std::memcmp(&target[op.offset + op.length], &untouched[op.offset + op.length], kSlot - op.length), 0);
  }
  for (std::size_t k = 0; k < receive_ops.size(); ++k) {
    const Op& op = ops[receive_ops[k]];
    ASSERT_EQ(b.done[k].wr_id, receive_ops[k]);
    ASSERT_EQ(b.done[k].status, IBV_WC_SUCCESS);
    ASSERT_EQ(b.done[k].byte_len, op.length);
    if (op.opcode != IBV_WR_SEND) {
      ASSERT_EQ(b.done[k].imm_data, receive_ops[k]);
    }
  }
  if (one.corrupt > 0) {
    EXPECT_GT(b.counter("drop_icrc"), 0U);
  }
  if (one.drop > 0) {
    EXPECT_GT(a.counter("completer_retry_err"), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, Faults,
                         testing::Values(Fault{"clean", {}}, Fault{"drop_tenth_percent", {.drop = 0.001}},
                                         Fault{"drop_one_percent", {.drop = 0.01}},
                                         Fault{"drop_five_percent", {.drop = 0.05}},
                                         Fault{"reorder", {.reorder = 0.02}}, Fault{"duplicate", {.duplicate = 0.05}},
                                         Fault{"corrupt", {.corrupt = 0.01}},
                                         Fault{"delay", {.delay = 300 * kMicrosecond}},
                                         Fault{"everything",
                                               {.drop = 0.01,
                                                .reorder = 0.01,
                                                .duplicate = 0.01,
                                                .corrupt = 0.005,
                                                .delay = 100 * kMicrosecond,
                                                .seed = 99}}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Both directions at once, on one queue pair, so that requests and answers interleave.
TEST(FaultsBothWays, RequestsAndResponsesOfBothEndsInterleave) {
  Simulation world({.drop = 0.01, .reorder = 0.01, .seed = 5}, {.drop = 0.01, .duplicate = 0.02, .seed = 6});
  Endpoint& a = *world.a;
  Endpoint& b = *world.b;
  connect(a, b, {.mtu = IBV_MTU_256, .max_reads = 2});
  fill_pattern(a.buffer, 1);
  fill_pattern(b.buffer, 2);
  const auto a_before = a.buffer;
  const auto b_before = b.buffer;
  constexpr std::size_t kBytes = 50'000;
  for (std::size_t i = 0; i < 10; ++i) {
    const bool read = i % 2 == 0;
    // a uses the lower half of the slot, b the upper one.
    const std::size_t at = i * 2 * kBytes;
    ASSERT_EQ(a.post(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, at, kBytes, &b, at), 0);
    ASSERT_EQ(b.post(read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, i, at + kBytes, kBytes, &a, at + kBytes), 0);
  }
  ASSERT_TRUE(world.run_until([&] { return a.done.size() == 10 && b.done.size() == 10; }));
  for (std::size_t i = 0; i < 10; ++i) {
    const std::size_t at = i * 2 * kBytes;
    EXPECT_EQ(a.done[i].status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.done[i].status, IBV_WC_SUCCESS);
    const bool read = i % 2 == 0;
    EXPECT_EQ(std::memcmp(read ? &a.buffer[at] : &b.buffer[at], read ? &b_before[at] : &a_before[at], kBytes), 0);
    EXPECT_EQ(std::memcmp(read ? &b.buffer[at + kBytes] : &a.buffer[at + kBytes],
                          read ? &a_before[at + kBytes] : &b_before[at + kBytes], kBytes),
              0);
  }
}

// A path that dies at any point: what the sender saw complete, the receiver has, in order and once.
TEST(FaultsSilence, WhatCompletedHasArrived) {
  for (std::uint64_t packets = 1; packets <= 120; packets += 3) {
    SCOPED_TRACE(packets);
    Simulation world({.drop = 0.02, .seed = packets, .silent_after = packets}, {.drop = 0.02, .seed = packets + 500});
    Endpoint& a = *world.a;
    Endpoint& b = *world.b;
    connect(a, b, {.timeout = 8, .retry_cnt = 3});
    constexpr std::uint64_t kMessages = 100;
    for (std::uint64_t id = 0; id < kMessages; ++id) {
      ASSERT_EQ(b.post_recv(id, id * 100, 100), 0);
      ASSERT_EQ(a.post(id % 3 == 0 ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM, id, 0, id % 100, &b, 0,
                       IBV_SEND_SIGNALED, static_cast<std::uint32_t>(id)),
                0);
    }
    ASSERT_TRUE(world.run_until([&] { return a.done.size() == kMessages; }));
    ASSERT_EQ(b.to_state(IBV_QPS_ERR), 0);
    world.run_for(kMillisecond);
    ASSERT_EQ(b.done.size(), kMessages);
    const auto succeeded = [](const Endpoint& end) {
      std::size_t count = 0;
      while (count < end.done.size() && end.done[count].status == IBV_WC_SUCCESS) ++count;
      for (std::size_t i = count; i < end.done.size(); ++i) EXPECT_NE(end.done[i].status, IBV_WC_SUCCESS);
      for (std::size_t i = 0; i < end.done.size(); ++i) EXPECT_EQ(end.done[i].wr_id, i);
      return count;
    };
    const std::size_t sent = succeeded(a);
    const std::size_t received = succeeded(b);
    EXPECT_LE(sent, received);
    for (std::size_t i = 0; i < received; ++i) EXPECT_EQ(b.done[i].imm_data, i);
  }
}

// Holds a share of what arrives back, each packet for a time of its own, so that hundreds overtake it.
class LatePort final : public PortDecorator {
 public:
  LatePort(std::unique_ptr<PacketPort> inner, double share, Nanos most, std::uint64_t seed)
      : PortDecorator(std::move(inner)), share_(share), most_(most), random_(seed) {}
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos now) noexcept override {
    std::array<RxPacket, 32> arrived;
    for (std::size_t count; (count = inner_->rx_burst(arrived, now)) > 0;) {
      for (const RxPacket& packet : std::span(arrived).first(count)) {
        const bool late = static_cast<double>(random_() >> 11) * 0x1p-53 < share_;
        waiting_.emplace(late ? now + random_() % most_ : now,
                         Held{{packet.bytes.begin(), packet.bytes.end()}, packet});
      }
    }
    handed_out_.clear();
    while (handed_out_.size() < packets.size() && !waiting_.empty() && waiting_.begin()->first <= now) {
      handed_out_.push_back(std::move(waiting_.begin()->second));
      waiting_.erase(waiting_.begin());
    }
    for (std::size_t i = 0; i < handed_out_.size(); ++i) {
      packets[i] = handed_out_[i].packet;
      packets[i].bytes = handed_out_[i].bytes;
    }
    return handed_out_.size();
  }
  void tx_burst(TxBatch& batch) noexcept override { inner_->tx_burst(batch); }

 private:
  struct Held {
    std::vector<std::byte> bytes;
    RxPacket packet;
  };
  const double share_;
  const Nanos most_;
  std::mt19937_64 random_;
  std::multimap<Nanos, Held> waiting_;
  std::vector<Held> handed_out_;
};

// A fifth of all packets late by up to 3 ms. What late packets make each end take for lost is not sent again and again,
// and there is progress all the time: an engine gives a path up that stands still.
TEST(FaultsReordering, OfManyPackets) {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr std::uint64_t kRequests = 8;
  for (const auto& [opcode, most_sent] :
       {std::pair(IBV_WR_RDMA_WRITE, 100'000U), std::pair(IBV_WR_RDMA_READ, 450'000U)}) {
    ManualClock clock;
    ibv_device entry{};
    Switch wire(clock, {.rate = 10e9}, 2);
    const auto open = [&](std::size_t end) {
      auto port = std::make_unique<LatePort>(wire.port(end), 0.2, 3 * kMillisecond, end + 1);
      return new Device(entry, Profile::kFull, clock, std::move(port));
    };
    Endpoint a(open(0));
    Endpoint b(open(1));
    connect(a, b);
    fill_pattern(a.buffer, 1);
    fill_pattern(b.buffer, 2);
    for (std::uint64_t id = 0; id < kRequests; ++id) ASSERT_EQ(a.post(opcode, id, 0, kBytes, &b, 0), 0);
    Psn una = impl(a.qp).send.una;
    Nanos moved_at = clock.now();
    Nanos longest = 0;
    while (a.done.size() < kRequests && clock.now() < 60 * kSecond) {
      a.poll();
      b.poll();
      clock.advance(5 * kMicrosecond);
      if (una == impl(a.qp).send.una) continue;
      una = impl(a.qp).send.una;
      longest = std::max(longest, clock.now() - std::exchange(moved_at, clock.now()));
    }
    ASSERT_EQ(a.done.size(), kRequests);
    for (const ibv_wc& each : a.done) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), kBytes), 0);
    EXPECT_LT(longest, 100 * kMillisecond);
    // 8,192 packets carry it.
    EXPECT_LT(a.counter("sent_pkts") + b.counter("sent_pkts"), most_sent);
  }
}

}  // namespace
}  // namespace fairlead::soft::test
