// The lanes of a port: what arrives at another's queue reaches the one whose it is, and one that stands still keeps
// nobody else.
#include "verbs/soft/port/frame/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/verbs/soft/endpoint.h"
#include "tests/verbs/soft/segment.h"
#include "verbs/soft/datagram/management.h"
#include "verbs/soft/port/frame/frame_port.h"
#include "verbs/soft/wire/bytes.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kFrameBytes = EthernetHeader::kBytes + 4200;

std::vector<std::byte> numbered(std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> frame(bytes, static_cast<std::byte>(number));
  store32(frame.data(), number);
  return frame;
}

TEST(FrameRing, HandsOutWhatWasPushedInOrder) {
  FrameRing ring(100);
  for (std::uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(ring.push(numbered(i, 10 + i)));
  std::array<std::span<const std::byte>, 4> frames;
  for (std::uint32_t next = 0; next < 10;) {
    const std::size_t count = ring.take(frames);
    ASSERT_EQ(count, std::min<std::size_t>(4, 10 - next));
    for (std::size_t i = 0; i < count; ++i, ++next) {
      const auto expected = numbered(next, 10 + next);
      EXPECT_TRUE(std::ranges::equal(frames[i], expected));
    }
    ring.release();
  }
  EXPECT_EQ(ring.take(frames), 0U);
}

TEST(FrameRing, RefusesWhatItHasNoRoomFor) {
  FrameRing ring(100);
  EXPECT_FALSE(ring.push(numbered(0, 101)));
  for (std::uint32_t i = 0; i < FrameRing::kSlots; ++i) ASSERT_TRUE(ring.push(numbered(i, 100)));
  EXPECT_FALSE(ring.push(numbered(7, 100)));
  std::array<std::span<const std::byte>, 1> frame;
  ASSERT_EQ(ring.take(frame), 1U);
  EXPECT_FALSE(ring.push(numbered(7, 100))) << "what was handed out is still looked at";
  ring.release();
  EXPECT_TRUE(ring.push(numbered(7, 100)));
}

TEST(FrameRing, JoinsTwoThreads) {
  constexpr std::uint32_t kFrames = 20'000;
  FrameRing ring(64);
  std::thread sender([&ring] {
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      while (!ring.push(numbered(i, 4 + i % 61))) std::this_thread::yield();
    }
  });
  std::uint32_t next = 0;
  while (next < kFrames) {
    std::array<std::span<const std::byte>, 8> frames;
    const std::size_t count = ring.take(frames);
    for (std::size_t i = 0; i < count; ++i, ++next) {
      const auto expected = numbered(next, 4 + next % 61);
      ASSERT_TRUE(std::ranges::equal(frames[i], expected)) << next;
    }
    ring.release();
    if (count == 0) std::this_thread::yield();
  }
  sender.join();
}

TEST(Lane, TellsWhoseAQueuePairIs) {
  const std::vector<Lane> lanes = Lane::make(3, 100);
  EXPECT_FALSE(lanes[0].is_others(1)) << "management";
  EXPECT_TRUE(lanes[2].is_others(1));
  EXPECT_TRUE(lanes[0].is_others(0x012345));
  EXPECT_FALSE(lanes[1].is_others(0x012345));
  EXPECT_FALSE(lanes[1].is_others(0x030000)) << "nobody's";
  EXPECT_FALSE(lanes[1].is_others(0xffffff)) << "nobody's";
}

TEST(Lane, AFlowSaysWhichItIsFor) {
  EXPECT_EQ(flow_toward(0x12345, 0x3abcde), 0x1234aU) << "only the lowest bits, and of these all";
  EXPECT_EQ(flow_toward(0xffff, 0x000011), 0xfff0U);
}

TEST(Lane, TakesFromAllInTurn) {
  std::vector<Lane> lanes = Lane::make(3, 100);
  for (std::uint32_t i = 0; i < 20; ++i) ASSERT_TRUE(lanes[1].hand_over(0, numbered(100 + i, 8)));
  ASSERT_TRUE(lanes[2].hand_over(0, numbered(200, 8)));
  std::array<std::span<const std::byte>, 4> frames;
  bool heard_second = false;
  for (int call = 0; call < 2; ++call) {
    ASSERT_GT(lanes[0].take(frames), 0U);
    heard_second = heard_second || load32(frames[0].data()) == 200;
  }
  EXPECT_TRUE(heard_second) << "though the first has more";
}

// A host with a port of several lanes; queue n is on segment n, as memif has it.
class Host {
 public:
  Host(const Clock& clock, std::span<Segment> segments, std::uint8_t number) {
    const auto count = static_cast<unsigned>(segments.size());
    std::vector<Lane> lanes = Lane::make(count, kFrameBytes);
    for (unsigned lane = 0; lane < count; ++lane) {
      auto queue = std::make_unique<MemoryDevice>(segments[lane], number);
      queues.push_back(queue.get());
      const FramePortConfig config{Gid::from_ipv4(0x0a000000U + number), 24, {}};
      auto port = std::make_unique<FramePort>(std::move(queue), config, clock.now(), lanes[lane]);
      devices.push_back(new Device(entry_, Profile::kFull, clock, std::move(port)));
      devices.back()->domain().set_partition(static_cast<std::uint8_t>(lane));
    }
  }
  Endpoint& endpoint(unsigned lane) {
    if (!devices[lane]) return *endpoints_[lane];
    endpoints_.resize(std::max<std::size_t>(endpoints_.size(), lane + 1));
    endpoints_[lane] = std::make_unique<Endpoint>(std::exchange(devices[lane], nullptr));
    return *endpoints_[lane];
  }
  ~Host() {
    for (Device* unused : devices) {
      if (unused != nullptr) unused->release();
    }
  }

  std::vector<MemoryDevice*> queues;
  std::vector<Device*> devices;  // that no endpoint has yet

 private:
  ibv_device entry_{};
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

class Lanes : public testing::Test {
 protected:
  bool run_until(const std::vector<Endpoint*>& polled, const std::function<bool()>& finished,
                 Nanos limit = 20 * kSecond) {
    for (const Nanos end = clock.now() + limit; clock.now() < end; clock.advance(20 * kMicrosecond)) {
      if (finished()) return true;
      for (Endpoint* each : polled) each->poll();
    }
    return false;
  }
  // Each writes to the other and reads it back.
  static void expect_data_moves(Endpoint& a, Endpoint& b,
                                const std::function<bool(const std::function<bool()>&)>& run) {
    constexpr std::size_t kBytes = 300'001;
    fill_pattern(a.buffer, 1);
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, kBytes, &b, 7), 0);
    ASSERT_EQ(a.post(IBV_WR_RDMA_READ, 2, 1'000'000, kBytes, &b, 7), 0);
    ASSERT_TRUE(run([&] { return a.done.size() == 2; }));
    for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(&a.buffer[0], &a.buffer[1'000'000], kBytes), 0);
  }

  ManualClock clock;
  std::array<Segment, 2> wires;
  Host left{clock, wires, 1};
  Host right{clock, wires, 2};
};

TEST_F(Lanes, PacketsSayWhichLaneTheyAreForAndArriveThere) {
  Endpoint& a = left.endpoint(1);
  Endpoint& b = right.endpoint(1);
  EXPECT_EQ(a.qp->qp_num >> 16, 1U);
  connect(a, b);
  const std::vector<Endpoint*> all{&a, &b};
  expect_data_moves(a, b, [&](const auto& finished) { return run_until(all, finished); });
  EXPECT_EQ(a.counter("lane_handed_over") + b.counter("lane_handed_over"), 0U);
  EXPECT_TRUE(wires[0].seen.empty());
  const std::vector<std::byte>& packet = wires[1].seen.back();
  EXPECT_EQ(load16(&packet[EthernetHeader::kBytes + kIpv4HeaderBytes]) & (kMostLanes - 1), 1U);
}

TEST_F(Lanes, PacketsThatArriveAtAnothersQueueReachTheirOwn) {
  Endpoint& a = left.endpoint(0);
  Endpoint& b = right.endpoint(1);
  connect(a, b);
  const std::vector<Endpoint*> all{&a, &b, &left.endpoint(1), &right.endpoint(0)};
  expect_data_moves(a, b, [&](const auto& finished) { return run_until(all, finished); });
  EXPECT_GT(right.endpoint(0).counter("lane_handed_over"), 290U);
  EXPECT_GT(left.endpoint(1).counter("lane_handed_over"), 100U);
  EXPECT_EQ(a.counter("completer_retry_err"), 0U);
  EXPECT_EQ(right.endpoint(0).counter("drop_lane_full"), 0U);
}

TEST_F(Lanes, ThoseOfOneDeviceReachEachOther) {
  Endpoint& a = left.endpoint(0);
  Endpoint& b = left.endpoint(1);
  connect(a, b);
  const std::vector<Endpoint*> all{&a, &b};
  expect_data_moves(a, b, [&](const auto& finished) { return run_until(all, finished); });
  for (const Segment& wire : wires) {
    for (const auto& frame : wire.seen) EXPECT_EQ(EthernetHeader::decode(frame.data()).type, EtherType::kArp);
  }
}

TEST_F(Lanes, OneThatStandsStillKeepsNobodyElse) {
  Endpoint& a = left.endpoint(0);
  Endpoint& b = right.endpoint(0);
  Endpoint& crossing = left.endpoint(1);
  Endpoint& stalled = right.endpoint(1);
  connect(a, b);
  const ConnectOptions patient{.timeout = 16};  // 268 ms
  connect(crossing, stalled, patient);
  ASSERT_EQ(crossing.post(IBV_WR_RDMA_WRITE, 9, 0, 2'000'000, &stalled, 0), 0);
  const std::vector<Endpoint*> moving{&a, &b, &crossing};
  expect_data_moves(a, b, [&](const auto& finished) { return run_until(moving, finished, kSecond / 10); });
  EXPECT_TRUE(crossing.done.empty());
  const std::vector<Endpoint*> all{&a, &b, &crossing, &stalled};
  ASSERT_TRUE(run_until(all, [&] { return crossing.done.size() == 1; }));
  EXPECT_EQ(crossing.done[0].status, IBV_WC_SUCCESS);
}

TEST_F(Lanes, WhatOneDoesNotKeepUpWithIsLostAndSentAgain) {
  Endpoint& a = left.endpoint(0);
  Endpoint& idle = right.endpoint(0);
  Endpoint& b = right.endpoint(1);
  std::array<Endpoint*, 4> all{&a, &left.endpoint(1), &idle, &b};
  connect(a, b, {.timeout = 12});
  // Packets without a window, as many as foreigners may send.
  const auto stray = [&](std::uint8_t opcode) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, opcode, 0, 100, &b, 0), 0);
    a.poll();
  };
  run_until({&a, &left.endpoint(1), &idle, &b}, [] { return false; }, 10 * kMillisecond);
  for (std::uint8_t i = 0; i < 8; ++i) stray(i);
  ASSERT_FALSE(right.queues[0]->arrived.empty());
  const std::vector<std::byte> frame = right.queues[0]->arrived.back();
  for (std::size_t i = 0; i < FrameRing::kSlots + 50; ++i) right.queues[0]->arrived.push_front(frame);
  EXPECT_TRUE(run_until({&a, &idle}, [&] { return right.queues[0]->arrived.empty(); }));
  EXPECT_GE(idle.counter("drop_lane_full"), 50U);
  ASSERT_TRUE(run_until({all.begin(), all.end()}, [&] { return a.done.size() == 8; }));
  for (const ibv_wc& completion : a.done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
}

TEST_F(Lanes, WhatIsForNobodyMeetsSilence) {
  Endpoint& a = left.endpoint(0);
  Endpoint& b = right.endpoint(0);
  ASSERT_EQ(a.to_init(), 0);
  ASSERT_EQ(a.to_rtr(0x050001, b.gid(), {}), 0);  // of a lane that there is not
  ASSERT_EQ(a.to_rts({.timeout = 12, .retry_cnt = 1}), 0);
  ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, 1, 0, 100, &b, 0), 0);
  ASSERT_TRUE(run_until({&a, &b, &left.endpoint(1), &right.endpoint(1)}, [&] { return a.done.size() == 1; }));
  EXPECT_EQ(a.done[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_GE(b.counter("drop_no_qp"), 2U);
  EXPECT_EQ(b.counter("sent_pkts"), 0U);
}

struct Mailbox final : ManagementHandler {
  void on_mad(const Gid&, const Gid&, std::span<const std::byte, kMadBytes>) noexcept override { ++received; }
  void run_timers() noexcept override {}
  int received = 0;
};

TEST_F(Lanes, ManagementIsTheFirstLanes) {
  Mailbox mailbox;
  Domain& first = right.devices[0]->domain();
  Domain& second = right.devices[1]->domain();
  Domain& sender = left.devices[1]->domain();
  first.set_management(&mailbox);
  const std::array<std::byte, kMadBytes> mad{};
  {
    const DomainLock lock(sender);
    ASSERT_TRUE(management::send(sender, Gid::from_ipv4(0x0a000001), Gid::from_ipv4(0x0a000002), mad));
  }
  for (int i = 0; i < 4; ++i) {
    for (Domain* each : {&sender, &second, &first}) each->poll();
  }
  EXPECT_EQ(mailbox.received, 1);
  EXPECT_EQ(second.counters.lane_handed_over.get(), 1U);
}

// A NIC sends what is not UDP to one queue, whoever asked.
TEST_F(Lanes, AnswersReachTheLaneThatAsked) {
  FramePortConfig config{Gid::from_ipv4(0x0a000009), 24, {}};
  std::vector<Lane> lanes = Lane::make(2, kFrameBytes);
  auto queue = std::make_unique<MemoryDevice>(wires[0], 9);
  MemoryDevice& asked_by = *queue;
  FramePort first(std::make_unique<MemoryDevice>(wires[1], 9), config, clock.now(), lanes[0]);
  FramePort second(std::move(queue), config, clock.now(), lanes[1]);
  MemoryDevice& heard_by = *wires[1].stations.back();
  std::array<RxPacket, 4> packets;
  for (FramePort* each : {&first, &second}) EXPECT_EQ(each->rx_burst(packets, clock.now()), 0U);

  const Route route = second.make_route(Gid::from_ipv4(0x0a000002), 0, 0, 0);
  TxBatch batch;
  Bth{}.encode(batch.begin(route, Bth::kBytes, 0));
  batch.finish(0);
  second.tx_burst(batch);
  const auto polls = [&](Host& host) { host.devices[0]->domain().poll(), host.devices[1]->domain().poll(); };
  polls(right);  // answers
  ASSERT_FALSE(asked_by.arrived.empty());
  heard_by.arrived = std::exchange(asked_by.arrived, {});
  wires[0].seen.clear();
  for (FramePort* each : {&first, &second}) EXPECT_EQ(each->rx_burst(packets, clock.now()), 0U);
  EXPECT_EQ(wires[0].seen.size(), 1U) << "what waited has left";
}

// Threads that drive a lane each. Their packets meet in rings only.
TEST(LanesInThreads, DriveOnlyTheirOwn) {
  const SteadyClock clock;
  std::array<Segment, 2> wires;
  Host host(clock, wires, 1);
  Endpoint& a = host.endpoint(0);
  Endpoint& b = host.endpoint(1);
  connect(a, b, {.mtu = IBV_MTU_4096, .timeout = 18});
  std::atomic<int> finished{0};
  const auto work = [&](Endpoint& own, Endpoint& other) {
    for (std::uint64_t round = 0; round < 20; ++round) {
      ASSERT_EQ(own.post(IBV_WR_RDMA_WRITE, round, 0, 100'000, &other, 2'000'000), 0);
      while (own.done.size() <= round) own.poll();
      ASSERT_EQ(own.done[round].status, IBV_WC_SUCCESS);
    }
    finished.fetch_add(1);
    while (finished.load() < 2) own.poll();
  };
  fill_pattern(a.buffer, 1);
  fill_pattern(b.buffer, 1);
  std::thread second([&] { work(b, a); });
  work(a, b);
  second.join();
  EXPECT_EQ(std::memcmp(&a.buffer[0], &b.buffer[2'000'000], 100'000), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
