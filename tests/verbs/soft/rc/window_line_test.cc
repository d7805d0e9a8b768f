// Queue pairs that wait for room in the window of their common peer: each gets its turn, whoever else leaves the line.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kCount = 48;
constexpr std::size_t kBytes = 64 << 10;  // of 192 KiB that may be on their way

// Queue pairs between the two ends, each with one WRITE posted that fills a third of the window.
class WindowLine : public testing::Test {
 protected:
  void SetUp() override {
    fill_pattern(a.buffer, 7);
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i > 0) {
        a.qp = a.make_qp({});
        b.qp = b.make_qp({});
      }
      connect(a, b);
      a_qps.push_back(a.qp);
      b_qps.push_back(b.qp);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      a.qp = a_qps[i];
      ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, i, i * kBytes, kBytes, &b, i * kBytes), 0);
    }
  }
  void TearDown() override {
    for (std::size_t i = 1; i < kCount; ++i) {
      if (a_qps[i] != nullptr) {
        EXPECT_EQ(api().destroy_qp(a_qps[i]), 0);
      }
      EXPECT_EQ(api().destroy_qp(b_qps[i]), 0);
    }
    a.qp = a_qps[0];
    b.qp = b_qps[0];
  }
  // The WRITEs that succeeded.
  [[nodiscard]] std::vector<std::size_t> succeeded() const {
    std::vector<std::size_t> ids;
    for (const ibv_wc& done : a.done) {
      if (done.status == IBV_WC_SUCCESS) ids.push_back(done.wr_id);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  [[nodiscard]] bool arrived(std::size_t i) const {
    return std::equal(a.buffer.begin() + static_cast<std::ptrdiff_t>(i * kBytes),
                      a.buffer.begin() + static_cast<std::ptrdiff_t>((i + 1) * kBytes),
                      b.buffer.begin() + static_cast<std::ptrdiff_t>(i * kBytes));
  }

  Simulation simulation;
  Endpoint& a = *simulation.a;
  Endpoint& b = *simulation.b;
  std::vector<ibv_qp*> a_qps;
  std::vector<ibv_qp*> b_qps;
};

TEST_F(WindowLine, EachGetsItsTurn) {
  ASSERT_TRUE(simulation.run_until([&] { return a.done.size() == kCount; }, kSecond));
  EXPECT_EQ(succeeded().size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_TRUE(arrived(i)) << i;
  EXPECT_EQ(a.counter("completer_retry_err"), 0U);
}

// Some of those that leave had just been called, and never use the room that they were called for.
TEST_F(WindowLine, MovesOnWhenQueuePairsFail) {
  for (unsigned round = 0; round < 4; ++round) {
    simulation.run_for(simulation.step_time);
    for (std::size_t i = round; i < kCount; i += 8) {
      a.qp = a_qps[i];
      ASSERT_EQ(a.to_state(IBV_QPS_ERR), 0);
    }
  }
  ASSERT_TRUE(simulation.run_until([&] { return a.done.size() == kCount; }, kSecond));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(i % 8 < 4 || arrived(i)) << i;
  }
  EXPECT_GE(succeeded().size(), kCount / 2);
}

TEST_F(WindowLine, MovesOnWhenQueuePairsAreDestroyed) {
  std::size_t left = kCount;
  for (unsigned round = 0; round < 4; ++round) {
    simulation.run_for(simulation.step_time);
    for (std::size_t i = 8 + round; i < kCount; i += 8) {
      ASSERT_EQ(api().destroy_qp(a_qps[i]), 0);
      a_qps[i] = nullptr;
      --left;
    }
  }
  ASSERT_TRUE(simulation.run_until(
      [&] {
        const auto done = succeeded();
        return std::count_if(done.begin(), done.end(), [&](std::size_t i) { return a_qps[i] != nullptr; }) ==
               static_cast<std::ptrdiff_t>(left);
      },
      kSecond));
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(a_qps[i] == nullptr || arrived(i)) << i;
  }
}

// One whose requests wait for room still answers.
TEST(WindowLineRetries, AnswersDoNotWaitForRoom) {
  RawPeer peer({}, {.mtu = IBV_MTU_256, .max_reads = 2});
  Endpoint& end = *peer.device;
  ibv_qp* const first = end.qp;
  ibv_qp* const second = end.qp = end.make_qp({});
  const ConnectOptions patient{.mtu = IBV_MTU_256, .timeout = 0};
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(RawPeer::kQpn + 1, peer.port->address().to_verbs(), patient), 0);
  ASSERT_EQ(end.to_rts(patient), 0);
  end.qp = first;
  ASSERT_EQ(end.post(IBV_WR_RDMA_WRITE, 1, 0, 8, &end, 0), 0);  // its timeout makes no room for the other's next
  ASSERT_EQ(peer.receive().size(), 1U);
  peer.clock.advance(3 * kMillisecond);
  end.qp = second;
  ASSERT_EQ(end.post(IBV_WR_RDMA_WRITE, 2, 0, 1 << 20, &end, 0), 0);  // more than there is room for
  ASSERT_LT(peer.receive().size(), 4096U);
  end.qp = first;
  constexpr std::uint32_t kAnswers = 4096;
  std::size_t answers = 0;
  const auto count = [&] {
    for (const Seen& each : peer.receive()) {
      answers += opcode_info(static_cast<std::uint8_t>(each.opcode)).kind == PacketKind::kReadResponse ? 1 : 0;
    }
  };
  peer.put({.opcode = Opcode::kReadRequest, .psn = peer.psn, .reth = peer.target(0, kAnswers * 256)});
  count();
  ASSERT_GT(answers, 0U);
  ASSERT_LT(answers, kAnswers);
  peer.clock.advance(2 * kMillisecond);  // the first one's probe is due
  for (std::uint32_t i = 0; i < kAnswers && answers < kAnswers; ++i) count();
  EXPECT_EQ(answers, kAnswers);
  EXPECT_EQ(api().destroy_qp(second), 0);
}

// A queue pair that goes back for what was lost, but not before others have made room, has not been without an answer
// while it waited for that.
TEST(WindowLineRetries, WaitingForRoomSpendsNone) {
  RawPeer peer({}, {.timeout = 8, .retry_cnt = 1});  // 1.05 ms
  Endpoint& end = *peer.device;
  ibv_qp* const first = end.qp;
  ibv_qp* const second = end.qp = end.make_qp({});
  const ConnectOptions patient{.timeout = 0};
  ASSERT_EQ(end.to_init(), 0);
  ASSERT_EQ(end.to_rtr(RawPeer::kQpn + 1, peer.port->address().to_verbs(), patient), 0);
  ASSERT_EQ(end.to_rts(patient), 0);
  const auto write = [&](ibv_qp* qp, std::size_t bytes) {
    end.qp = qp;
    ibv_sge segment = end.sge(0, bytes);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &segment;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  };
  constexpr std::size_t kOthers = 179;  // fill the window with the first one's
  write(first, 1024);
  write(second, kOthers * 1024);
  ASSERT_EQ(peer.receive().size(), 1 + kOthers);
  peer.send({.psn = peer.psn, .aeth = {static_cast<std::uint8_t>(Syndrome::kNakSequence)}, .qpn = first->qp_num});
  EXPECT_EQ(peer.receive_after(1000 * kMicrosecond).size(), 0U);  // there is no room to send it again
  EXPECT_EQ(peer.receive_after(2000 * kMicrosecond).size(), 0U);
  peer.send({.psn = peer.psn + (kOthers - 1), .qpn = second->qp_num});
  ASSERT_EQ(peer.receive().size(), 1U);
  EXPECT_EQ(peer.receive_after(100 * kMicrosecond).size(), 0U);
  peer.send({.psn = peer.psn, .qpn = first->qp_num});
  ASSERT_EQ(end.done.size(), 2U);
  for (const ibv_wc& each : end.done) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
  EXPECT_EQ(api().destroy_qp(second), 0);
  end.qp = first;
}

// Two queue pairs that one peer has, of which one never answers.
class SilentNeighbour : public testing::Test {
 protected:
  static constexpr std::size_t kPackets = 100;  // more than half of the window

  void SetUp() override {
    Endpoint& end = *peer.device;
    silent = end.qp;
    lively = end.qp = end.make_qp({});
    ASSERT_EQ(end.to_init(), 0);
    ASSERT_EQ(end.to_rtr(RawPeer::kQpn + 1, peer.port->address().to_verbs(), {.timeout = 0}), 0);
    ASSERT_EQ(end.to_rts({.timeout = 0}), 0);
  }
  void TearDown() override {
    EXPECT_EQ(api().destroy_qp(lively), 0);
    peer.device->qp = silent;
  }
  void write(ibv_qp* qp, std::size_t packets) {
    peer.device->qp = qp;
    ASSERT_EQ(peer.device->post(IBV_WR_RDMA_WRITE, 1, 0, packets * 1024, peer.device.get(), 0), 0);
  }
  /// Of the lively one; what leaves is acknowledged.
  std::size_t sent() {
    const auto seen = peer.receive();
    const auto count = static_cast<std::size_t>(
        std::ranges::count_if(seen, [](const Seen& each) { return each.qpn == RawPeer::kQpn + 1; }));
    acknowledged += static_cast<std::uint32_t>(count);
    if (count > 0) peer.send({.psn = peer.psn + (acknowledged - 1), .qpn = lively->qp_num});
    return count;
  }

  RawPeer peer{{}, {.timeout = 0}};
  ibv_qp* silent = nullptr;
  ibv_qp* lively = nullptr;
  std::uint32_t acknowledged = 0;
};

TEST_F(SilentNeighbour, LeavesTheOtherItsWindow) {
  write(silent, 1);
  for (unsigned round = 0; round < 40; ++round) {  // in which it is probed again and again
    write(lively, 4);
    EXPECT_EQ(sent(), 4U);
    peer.clock.advance(4 * kMillisecond);
    static_cast<void>(peer.receive());
  }
  EXPECT_GE(peer.device->counter("completer_retry_err"), 4U);
  write(lively, kPackets);
  EXPECT_EQ(sent(), kPackets);
}

TEST_F(SilentNeighbour, DoesNotFillTheWindowWithWhatItProbesWith) {
  write(silent, 2 * kPackets);
  for (unsigned round = 0; round < 40; ++round) {
    write(lively, 4);
    static_cast<void>(sent());
    peer.clock.advance(4 * kMillisecond);
    static_cast<void>(sent());
  }
  write(lively, kPackets);
  EXPECT_GE(sent(), kPackets / 2) << "there is room beside a probe";
}

// A peer that has the packets answers what asks for an answer. A probe that does not is answered as if nothing had
// come, again and again, until the retries are over.
TEST_F(SilentNeighbour, IsAskedForAnAnswerByEachProbe) {
  write(silent, kPackets);
  ASSERT_EQ(peer.receive().size(), kPackets);
  std::size_t probes = 0;
  for (unsigned round = 0; round < 10; ++round) {  // others are heard, so that the window stays open
    write(lively, 4);
    EXPECT_EQ(sent(), 4U);
    const auto probe = peer.receive_after(4 * kMillisecond);
    if (probe.empty()) continue;
    ++probes;
    EXPECT_TRUE(probe.back().ack_request) << "a probe of " << probe.size() << " packets";
  }
  EXPECT_GE(probes, 2U);
}

// Queue pairs of one device whose peer's are gone, beside one that is answered.
class SilentOnes : public testing::TestWithParam<std::tuple<ibv_wr_opcode, ibv_mtu>> {
 protected:
  static constexpr std::size_t kSilent = 64 << 10;  // bytes of each
  static constexpr std::uint32_t kNobody = 0xabcdef;

  void TearDown() override {
    for (ibv_qp* const qp : silent) EXPECT_EQ(api().destroy_qp(qp), 0);
    a.qp = lively;
  }
  [[nodiscard]] ibv_wr_opcode opcode() const { return std::get<0>(GetParam()); }
  [[nodiscard]] ConnectOptions options(std::uint8_t timeout) const {
    return {.mtu = std::get<1>(GetParam()), .timeout = timeout};
  }
  void make_silent(std::size_t count, std::uint8_t timeout) {
    for (std::size_t i = 0; i < count; ++i) {
      silent.push_back(a.qp = a.make_qp({}));
      ASSERT_EQ(a.to_init(), 0);
      ASSERT_EQ(a.to_rtr(kNobody, b.gid(), options(timeout)), 0);
      ASSERT_EQ(a.to_rts(options(timeout)), 0);
      ASSERT_EQ(a.post(opcode(), i, i * kSilent, kSilent, &b, 0), 0);
    }
    a.qp = lively;
  }

  Simulation simulation;
  Endpoint& a = *simulation.a;
  Endpoint& b = *simulation.b;
  ibv_qp* const lively = a.qp;
  std::vector<ibv_qp*> silent;
};

TEST_P(SilentOnes, EachFailsAfterItsOwnRetries) {
  simulation.step_time = 200 * kMicrosecond;
  make_silent(5, 14);
  ASSERT_TRUE(simulation.run_until([&] { return a.done.size() == silent.size(); }, kSecond)) << a.done.size();
  for (const ibv_wc& each : a.done) EXPECT_EQ(each.status, IBV_WC_RETRY_EXC_ERR);
}

TEST_P(SilentOnes, LeaveTheRoomToWhoIsAnswered) {
  connect(a, b, options(14));
  make_silent(4, 20);
  simulation.run_for(20 * kMillisecond);  // all of them probe
  for (int i = 0; i < 8; ++i) {
    a.done.clear();
    ASSERT_EQ(a.post(opcode(), 100, 1 << 20, 1 << 20, &b, 1 << 20), 0);
    ASSERT_TRUE(simulation.run_until([&] { return a.done.size() == 1; }, 20 * kMillisecond)) << i;
    EXPECT_EQ(a.done[0].status, IBV_WC_SUCCESS);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SilentOnes,
                         testing::Combine(testing::Values(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ),
                                          testing::Values(IBV_MTU_1024, IBV_MTU_4096)));

// Its next turn may be far, and others fill the window until then.
TEST(WindowLineRetries, TheLastPacketOfATurnAsksForAnAnswer) {
  RawPeer peer;
  Endpoint& end = *peer.device;
  ibv_qp* const other = end.make_qp({});
  ibv_sge segments[2] = {end.sge(0, 5 * 1024), end.sge(0, 100 * 1024)};
  ibv_send_wr requests[2] = {}, *bad = nullptr;
  for (int i : {0, 1}) {
    requests[i].opcode = IBV_WR_RDMA_WRITE;
    requests[i].sg_list = &segments[i];
    requests[i].num_sge = 1;
  }
  requests[0].next = &requests[1];
  ASSERT_EQ(ibv_post_send(end.qp, requests, &bad), 0);
  const auto seen = peer.receive();
  ASSERT_EQ(seen.size(), 105U);
  for (const std::size_t turn : {32U, 64U, 96U}) EXPECT_TRUE(seen[turn - 1].ack_request) << turn;
  EXPECT_EQ(api().destroy_qp(other), 0);
}

}  // namespace
}  // namespace fairlead::soft::test
