// Ports with several queues over memif: lanes, each driven by a thread of its own.
//
// The process must be its own: DPDK is started in it once.
#include "verbs/soft/port/frame/lanes.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/verbs/soft/endpoint.h"
#include "verbs/soft/api/objects.h"
#include "verbs/soft/port/dpdk/dpdk_module.h"
#include "verbs/soft/port/port_spec.h"

namespace fairlead::soft::test {
namespace {

// Two hosts joined by a memif, in one process.
class DpdkLanes : public testing::Test {
 protected:
  void SetUp() override {
    const auto device = open_dpdk_device("net_null0", 256);
    if (!device && device.error().message().find("there is no libfairlead-dpdk.so") != std::string::npos) {
      GTEST_SKIP() << device.error().message();
    }
    ASSERT_TRUE(device) << device.status().to_string();
  }
  static std::string packet_io(int host, unsigned queues) {
    static int wires = 0;
    if (host == 0) ++wires;
    return fmt::format("dpdk:net_memif{},role={},socket=fairlead-lanes-{}-{},queues={}", host,
                       host == 0 ? "server" : "client", ::getpid(), wires, queues);
  }
  static ibv_context* open(const std::string& packet_io, unsigned lane) {
    const auto device = find_or_add_device({.name = "lanes", .packet_io = packet_io, .address = "", .lane = lane});
    EXPECT_TRUE(device) << device.status().to_string();
    ibv_context* context = api().open_device(*device);
    EXPECT_NE(context, nullptr);
    return context;
  }

  const std::string left = packet_io(0, 2);
  const std::string right = packet_io(1, 2);
};

constexpr ConnectOptions kPatient{.mtu = IBV_MTU_4096, .timeout = 18};

// WRITEs and reads back; false if a request failed, the bytes are wrong or the time is up.
bool moves_data(Endpoint& a, Endpoint& b, std::uint32_t seed, std::chrono::seconds limit = std::chrono::seconds(30)) {
  constexpr std::size_t kBytes = 1'000'003;
  a.done.clear();
  fill_pattern(a.buffer, seed);
  if (a.post(IBV_WR_RDMA_WRITE, 1, 0, kBytes, &b, 9) != 0) return false;
  if (a.post(IBV_WR_RDMA_READ, 2, 2'000'000, kBytes, &b, 9) != 0) return false;
  if (!drive(a, b, [&] { return a.done.size() == 2; }, limit)) return false;
  for (const ibv_wc& completion : a.done) {
    if (completion.status != IBV_WC_SUCCESS) return false;
  }
  return std::memcmp(&a.buffer[0], &a.buffer[2'000'000], kBytes) == 0;
}

TEST_F(DpdkLanes, EachThreadDrivesItsOwn) {
  Endpoint a0(open(left, 0)), a1(open(left, 1)), b0(open(right, 0)), b1(open(right, 1));
  EXPECT_EQ(std::string(a1.context->device->name), "lanesq1");
  EXPECT_EQ(Gid::from_verbs(a0.gid()), Gid::from_verbs(a1.gid()));
  connect(a0, b0, kPatient);
  connect(a1, b1, kPatient);
  std::thread second([&] {
    for (std::uint32_t round = 0; round < 10; ++round) ASSERT_TRUE(moves_data(a1, b1, round)) << round;
  });
  for (std::uint32_t round = 0; round < 10; ++round) ASSERT_TRUE(moves_data(b0, a0, round)) << round;
  second.join();
  for (const Endpoint* each : {&a0, &a1, &b0, &b1}) EXPECT_EQ(each->counter("lane_handed_over"), 0U);
}

TEST_F(DpdkLanes, AQueuePairMayReachAnyLaneOfThePeer) {
  Endpoint a0(open(left, 0)), b1(open(right, 1));  // watchers drive the other two
  connect(a0, b1, kPatient);
  EXPECT_TRUE(moves_data(a0, b1, 1));
  EXPECT_TRUE(moves_data(b1, a0, 2));
  const Endpoint b0(open(right, 0));
  EXPECT_GT(b0.counter("lane_handed_over"), 200U);
}

TEST_F(DpdkLanes, OneThatStandsStillKeepsNobodyElse) {
  Endpoint a0(open(left, 0)), a1(open(left, 1)), b0(open(right, 0)), b1(open(right, 1));
  connect(a0, b0, kPatient);
  connect(a1, b1, kPatient);
  ASSERT_TRUE(moves_data(a1, b1, 1));
  for (const unsigned still : {0U, 1U}) {
    Endpoint& stalled = still == 0 ? b0 : b1;
    Endpoint& sender = still == 0 ? a0 : a1;
    sender.done.clear();
    {
      const DomainLock lock(impl(stalled.context).domain());
      ASSERT_EQ(sender.post(IBV_WR_RDMA_WRITE, 7, 0, 3'000'000, &stalled, 0), 0);
      EXPECT_TRUE(still == 0 ? moves_data(a1, b1, 3) : moves_data(a0, b0, 4));
      sender.poll();
      EXPECT_TRUE(sender.done.empty());
    }
    ASSERT_TRUE(drive(sender, stalled, [&] { return sender.done.size() == 1; }));
    EXPECT_EQ(sender.done[0].status, IBV_WC_SUCCESS);
  }
}

TEST_F(DpdkLanes, TheDeviceListHasThemAll) {
  ::setenv("FAIRLEAD_PACKET_IO", left.c_str(), 1);
  int count = 0;
  ibv_device** list = api().get_device_list(&count);
  ::unsetenv("FAIRLEAD_PACKET_IO");
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(list[0]->name, "soft0");
  EXPECT_STREQ(list[1]->name, "soft0q1");
  EXPECT_EQ(list[2], nullptr);
  Endpoint a0(api().open_device(list[0])), a1(api().open_device(list[1])), again(api().open_device(list[1]));
  connect(a0, a1, kPatient);
  EXPECT_TRUE(moves_data(a0, a1, 1)) << "lanes of one device";
  EXPECT_EQ(a1.qp->qp_num >> 16, again.qp->qp_num >> 16);
  ibv_device_attr attr{};
  ASSERT_EQ(api().query_device(a1.context, &attr), 0);
  EXPECT_EQ(attr.node_guid, api::get_device_guid(list[1]));
  api().free_device_list(list);
}

// A queue without a ring at the other end would use another queue's.
TEST_F(DpdkLanes, EndsWithDifferentNumbersOfQueuesDoNotMeet) {
  Endpoint a(open(left, 0));
  const std::string one = right.substr(0, right.rfind(','));
  Endpoint b(open(one, 0));
  connect(a, b, {.timeout = 10, .retry_cnt = 1});
  EXPECT_FALSE(moves_data(a, b, 1));
  ASSERT_FALSE(a.done.empty());
  EXPECT_EQ(a.done[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(b.counter("rcvd_pkts"), 0U);
}

TEST_F(DpdkLanes, WhatCannotBeIsRefusedWithItsRemedy) {
  using testing::HasSubstr;
  EXPECT_THAT(parse_port_spec("dpdk:net_memif0,queues=17").status().message(), HasSubstr("a number from 1 to 16"));
  EXPECT_FALSE(parse_port_spec("udp,queues=2"));
  EXPECT_THAT(parse_port_spec("dpdk:net_memif0,queues=2,transmit=zero-copy").status().message(),
              HasSubstr("takes a port of one queue"));
  EXPECT_THAT(open_dpdk_device("net_pcap900,iface=lo", 256, 2).status().message(), HasSubstr("fewer than queues=2"));
  const auto third = find_or_add_device({.name = "lanes", .packet_io = left, .address = "", .lane = 2});
  EXPECT_THAT(third.status().message(), HasSubstr("there is no lane 2 of lanes"));
  const auto second = find_or_add_device({.name = "lanes", .packet_io = "udp", .address = "", .lane = 1});
  EXPECT_THAT(second.status().message(), HasSubstr("queues=N"));
}

}  // namespace
}  // namespace fairlead::soft::test
