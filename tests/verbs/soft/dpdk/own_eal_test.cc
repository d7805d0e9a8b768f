// softroce's ports in a program that uses DPDK itself: it has started it, has a port of its own, and alarms.
#include <gtest/gtest.h>
#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "tests/port_under_test.h"
#include "tests/verbs/soft/endpoint.h"

namespace fairlead::soft::test {
namespace {

constexpr std::uint16_t kBurst = 32;

// What such a program has done before it opens a device of ours.
class Application : public testing::Test {
 protected:
  void SetUp() override {
    const std::string prefix = "own-eal-test-" + std::to_string(::getpid());
    std::array<std::string, 10> words{"own_eal_test",   "--no-huge", "-m", "256",           "--no-pci",
                                      "--no-telemetry", "--lcores",  "0",  "--file-prefix", prefix};
    std::array<char*, 11> argv{};
    for (std::size_t i = 0; i < words.size(); ++i) argv[i] = words[i].data();
    ASSERT_GE(rte_eal_init(static_cast<int>(words.size()), argv.data()), 0) << rte_strerror(rte_errno);
    ASSERT_EQ(rte_dev_probe("net_null7"), 0);
    ASSERT_EQ(rte_eth_dev_get_port_by_name("net_null7", &port_), 0);
    pool_ = rte_pktmbuf_pool_create("own_pool", 511, 32, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    ASSERT_NE(pool_, nullptr);
    const rte_eth_conf conf{};
    ASSERT_EQ(rte_eth_dev_configure(port_, 1, 1, &conf), 0);
    ASSERT_EQ(rte_eth_rx_queue_setup(port_, 0, 64, SOCKET_ID_ANY, nullptr, pool_), 0);
    ASSERT_EQ(rte_eth_tx_queue_setup(port_, 0, 64, SOCKET_ID_ANY, nullptr), 0);
    ASSERT_EQ(rte_eth_dev_start(port_), 0);
  }
  /// A burst of the program's own port, which makes packets of nothing.
  void expect_own_port_serves() {
    std::array<rte_mbuf*, kBurst> packets{};
    const std::uint16_t count = rte_eth_rx_burst(port_, 0, packets.data(), kBurst);
    ASSERT_EQ(count, kBurst);
    ASSERT_EQ(rte_eth_tx_burst(port_, 0, packets.data(), count), count);
  }

  std::uint16_t port_ = RTE_MAX_ETHPORTS;
  rte_mempool* pool_ = nullptr;
};

TEST_F(Application, KeepsItsStartItsPortItsAlarmsAndItsThreads) {
  const unsigned lcore = rte_lcore_id();
  std::atomic<int> alarms{0};
  const auto ring = [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); };
  {
    const fairlead::test::MemifWire wire;
    Endpoint a(open_udp(wire.server()));
    Endpoint b(open_udp(wire.client()));
    connect(a, b, {.mtu = IBV_MTU_4096});
    ASSERT_EQ(rte_eal_alarm_set(1000, ring, &alarms), 0);
    fill_pattern(a.buffer, 1);
    for (std::uint64_t round = 1; round <= 20; ++round) {
      ASSERT_EQ(a.post(IBV_WR_RDMA_WRITE, round, 0, 200'000, &b, 0), 0);
      ASSERT_TRUE(drive(a, b, [&] { return a.done.size() == round; }));
      ASSERT_EQ(a.done.back().status, IBV_WC_SUCCESS);
      expect_own_port_serves();
    }
    EXPECT_EQ(std::memcmp(a.buffer.data(), b.buffer.data(), 200'000), 0);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (alarms == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(alarms, 1);
    EXPECT_EQ(rte_lcore_id(), lcore);
  }
  // Our ports are closed; the program's goes on, and so does its DPDK.
  expect_own_port_serves();
  ASSERT_EQ(rte_eal_alarm_set(1000, ring, &alarms), 0);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (alarms < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  EXPECT_EQ(alarms, 2);
  EXPECT_EQ(rte_eth_dev_count_avail(), 1);
  EXPECT_EQ(rte_mempool_in_use_count(pool_), 0U);
  ASSERT_EQ(rte_eth_dev_stop(port_), 0);
  // No rte_eal_cleanup(): memif's driver never takes its listener from the interrupt thread, which would look at memory
  // that this call unmaps (docs/dpdk.md).
}

}  // namespace
}  // namespace fairlead::soft::test
