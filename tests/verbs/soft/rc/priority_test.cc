// A queue pair with a service level goes before those without: it waits for little of what they have on their way.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "tests/verbs/soft/raw_peer.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/port/urgent_way.h"

namespace fairlead::soft::test {
namespace {

constexpr std::size_t kWrites = 200;
constexpr std::size_t kBytes = 64 << 10;
constexpr std::uint64_t kUrgent = 1000;  // the first id of those that have priority

class Priority : public testing::TestWithParam<Ways> {
 protected:
  /// A second queue pair at each end, with that service level, beside one that has much to write.
  void start(std::uint8_t service_level, ibv_mtu mtu = IBV_MTU_1024) {
    connect(a, b, {.mtu = mtu});
    for (std::size_t i = 0; i < ends.size(); ++i) {
      plain[i] = ends[i]->qp;
      urgent[i] = ends[i]->qp = ends[i]->make_qp({});
    }
    connect(a, b, {.mtu = mtu, .service_level = service_level});
    a.qp = plain[0];
    for (std::size_t i = 0; i < kWrites; ++i) ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, i, 0, kBytes, &b, 0), 0);
    a.qp = urgent[0];
  }
  void TearDown() override {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(api().destroy_qp(urgent[i]), 0);
      ends[i]->qp = plain[i];
    }
  }
  [[nodiscard]] std::size_t ended(bool urgent_ones) const {
    return static_cast<std::size_t>(std::ranges::count_if(a.done, [=](const ibv_wc& done) {
      return (done.wr_id >= kUrgent) == urgent_ones && done.status == IBV_WC_SUCCESS;
    }));
  }
  /// So many of the plain WRITEs ended between the posting and the end of the last of some urgent ones.
  std::size_t passed_while_urgent() {
    constexpr std::size_t kCount = 20;
    std::size_t passed = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::size_t before = ended(false);
      EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, kUrgent + i, 0, 8, &b, 0), 0);
      EXPECT_TRUE(simulation.run_until([&] { return ended(true) == i + 1; }, kSecond));
      if (i >= kCount / 2) passed += ended(false) - before;  // by then what was under way has arrived
    }
    return passed;
  }

  Simulation simulation{{}, {}, {}, GetParam()};
  Endpoint& a = *simulation.a;
  Endpoint& b = *simulation.b;
  std::array<Endpoint*, 2> ends{&a, &b};
  std::array<ibv_qp*, 2> plain{}, urgent{};
};

INSTANTIATE_TEST_SUITE_P(Ways, Priority, testing::Values(Ways::kOne, Ways::kTwo),
                         [](const auto& info) { return info.param == Ways::kOne ? "One" : "Two"; });

TEST_P(Priority, OthersKeepLittleOnTheirWay) {
  start(1);
  const std::size_t passed = passed_while_urgent();
  if (GetParam() == Ways::kOne) {
    EXPECT_LE(passed, 15u) << "about 32 KiB are on their way, not a window of 192 KiB";
  } else {
    EXPECT_LE(passed, 1u) << "what is on their way is not waited for";
  }
  ASSERT_TRUE(simulation.run_until([&] { return ended(false) == kWrites; }, kSecond)) << "nobody starves";
  EXPECT_EQ(a.counter("completer_retry_err"), 0u);
}

TEST_P(Priority, WithoutAServiceLevelAllAreEqual) {
  start(0);
  const std::size_t passed = passed_while_urgent();
  EXPECT_GE(passed, 40u);
  ASSERT_TRUE(simulation.run_until([&] { return ended(false) == kWrites; }, kSecond));
}

// Whoever keeps little on its way asks for an acknowledgement of it, else it waits for its timeout.
TEST_P(Priority, OthersGoOnBesideIt) {
  start(1, IBV_MTU_4096);
  std::size_t posted = 0;
  ASSERT_TRUE(simulation.run_until(
      [&] {
        if (ended(true) == posted) {
          EXPECT_EQ(a.post(IBV_WR_RDMA_WRITE, kUrgent + posted++, 0, 8, &b, 0), 0);
        }
        return ended(false) == kWrites;
      },
      kSecond));
  EXPECT_EQ(a.counter("completer_retry_err"), 0u);
}

// What has priority may be large all the same: it keeps to the window, but for a little that always finds room.
TEST(PriorityAlone, KeepsToTheWindow) {
  for (const std::uint8_t service_level : {std::uint8_t{0}, std::uint8_t{1}}) {
    RawPeer peer({.buffer_bytes = 1 << 20}, {.service_level = service_level});
    Endpoint& end = *peer.device;
    ASSERT_EQ(end.post(IBV_WR_RDMA_WRITE, 1, 0, 1 << 20, nullptr, 0), 0);
    std::size_t bytes = 0;
    for (int round = 0; round < 100; ++round) {
      end.poll();
      for (const auto& packet : peer.receive()) bytes += packet.payload.size();
    }
    EXPECT_LE(bytes, (192u + 16) << 10) << int{service_level};
  }
}

// Neither does it shut the others out.
TEST_P(Priority, LeavesTheOthersTurns) {
  start(1);
  for (std::size_t i = 0; i < kWrites; ++i) {
    ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, kUrgent + i, 0, kBytes, &b, 0), 0);
  }
  ASSERT_TRUE(simulation.run_until([&] { return ended(true) == kWrites; }, kSecond));
  EXPECT_GE(ended(false), 5u) << "they are not shut out";
  ASSERT_TRUE(simulation.run_until([&] { return ended(false) == kWrites; }, kSecond));
}

struct QuietWay final : UrgentWay {
  [[nodiscard]] bool open() const noexcept override { return true; }
  std::size_t rx_urgent(std::span<RxPacket>, Nanos) noexcept override { return 0; }
};

// Always has something urgent, and a little else. None of its packets is for anybody.
class BusyPort final : public PacketPort, public UrgentWay {
 public:
  [[nodiscard]] const Gid& address() const noexcept override { return address_; }
  [[nodiscard]] std::uint32_t max_mtu() const noexcept override { return 4096; }
  [[nodiscard]] ReceiveWindow receive_window() const noexcept override { return {1 << 20}; }
  [[nodiscard]] Route make_route(const Gid& destination, std::uint32_t, std::uint8_t, std::uint8_t) override {
    return {address_, destination};
  }
  std::size_t rx_burst(std::span<RxPacket> packets, Nanos) noexcept override {
    return bulk == 0 ? 0 : put(packets, bulk);
  }
  void tx_burst(TxBatch& batch) noexcept override { batch.clear(); }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }
  [[nodiscard]] bool open() const noexcept override { return true; }
  std::size_t rx_urgent(std::span<RxPacket> packets, Nanos) noexcept override { return put(packets, urgent); }

  unsigned bulk = 1;
  unsigned urgent = 1000;

 private:
  std::size_t put(std::span<RxPacket> packets, unsigned& left) noexcept {
    --left;
    packets[0] = {packet_, address_, kRoceUdpPort};
    return 1;
  }

  const Gid address_ = Gid::from_ipv4(0x0a000009);
  const std::array<std::byte, 64> packet_{};
};

// Nor where it comes at another port than theirs.
TEST(PriorityOfTwoPorts, LeavesTheOthersTurns) {
  QuietWay quiet;  // outlives the device
  RawPeer peer;
  Endpoint& end = *peer.device;
  auto owned = std::make_unique<BusyPort>();
  BusyPort& busy = *owned;
  {
    Domain& domain = impl(end.context).domain();
    const DomainLock lock(domain);
    domain.find_port(Gid::from_verbs(end.gid()))->urgent_way = &quiet;
    domain.add_port(std::move(owned)).urgent_way = &busy;
  }
  ASSERT_EQ(end.post(IBV_WR_RDMA_WRITE, 1, 0, 8, &end, 0), 0);
  EXPECT_EQ(peer.receive().size(), 1U);
  peer.clock.advance(kSecond);
  std::size_t repeated = 0;
  for (int i = 0; i < 4; ++i) repeated += peer.receive().size();
  EXPECT_LT(busy.urgent, 1000U);
  EXPECT_EQ(busy.bulk, 0U) << "what else is at its port";
  EXPECT_GE(repeated, 1U) << "and timers";
}

}  // namespace
}  // namespace fairlead::soft::test
