#include "topology/this_machine.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/topology/machines.h"
#include "topology/own_machine.h"

namespace fairlead::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ThisMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / "fairlead-topology-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(ThisMachine, IsolatedCoresAreThoseOfWhichAThreadIs) {
  Machine machine = make_machine(1, 4);
  write("/sys/devices/system/cpu/isolated", "1,3\n");
  read_isolated_cores(root_, &machine);
  EXPECT_FALSE(machine.cores[0].isolated);
  EXPECT_TRUE(machine.cores[1].isolated);
  EXPECT_TRUE(machine.cores[3].isolated);
}

TEST_F(ThisMachine, WithoutThatFileNothingIsIsolated) {
  Machine machine = make_machine(1, 2);
  read_isolated_cores(root_, &machine);
  write("/sys/devices/system/cpu/isolated", "\n");
  read_isolated_cores(root_, &machine);
  EXPECT_FALSE(machine.cores[0].isolated || machine.cores[1].isolated);
  EXPECT_THAT(machine.remarks, IsEmpty());
}

TEST_F(ThisMachine, WordsThatAreNoListAreRemarkedOn) {
  Machine machine = make_machine(1, 2);
  write("/sys/devices/system/cpu/isolated", "all of them\n");
  read_isolated_cores(root_, &machine);
  ASSERT_EQ(machine.remarks.size(), 1u);
  EXPECT_THAT(machine.remarks[0], HasSubstr("'all of them'"));
}

TEST_F(ThisMachine, WhatAThreadMayUseFollowsItsStatus) {
  Machine machine = make_machine(2, 2);
  read_allowed(root_, &machine);  // there is no such file
  EXPECT_EQ(machine.cores[3].usable_pus.size(), 1u);
  write("/proc/thread-self/status", "Name:\tx\nCpus_allowed:\t5\nCpus_allowed_list:\t0,2\nMems_allowed_list:\t1\n");
  read_allowed(root_, &machine);
  EXPECT_THAT(machine.cores[0].usable_pus, ::testing::ElementsAre(0u));
  EXPECT_THAT(machine.cores[1].usable_pus, IsEmpty());
  EXPECT_THAT(machine.cores[2].usable_pus, ::testing::ElementsAre(2u));
  EXPECT_FALSE(machine.memories[0].allowed);
  EXPECT_TRUE(machine.memories[1].allowed);
  write("/proc/thread-self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n");
  read_allowed(root_, &machine);
  EXPECT_EQ(machine.cores[1].usable_pus.size(), 1u);
  EXPECT_TRUE(machine.memories[0].allowed);
}

// In the root cpuset what a thread may use has CPUs that went offline, too.
TEST_F(ThisMachine, WhatIsOfflineIsNotUsed) {
  Machine machine = make_machine(2, 2);
  write("/proc/thread-self/status", "Cpus_allowed_list:\t0-2\n");
  write("/sys/devices/system/cpu/online", "0,2-3\n");
  read_allowed(root_, &machine);
  EXPECT_EQ(machine.cores[0].usable_pus.size(), 1u);
  EXPECT_THAT(machine.cores[1].usable_pus, IsEmpty());
  EXPECT_EQ(machine.cores[2].usable_pus.size(), 1u);
  EXPECT_THAT(machine.cores[3].usable_pus, IsEmpty());
  write("/sys/devices/system/cpu/online", "0-3\n");
  read_allowed(root_, &machine);
  EXPECT_EQ(machine.cores[1].usable_pus.size(), 1u);
}

TEST(OwnMachine, IsReadOnceAndIsAsItWasRead) {
  const Result<Machine> first = own_machine(), again = own_machine();
  ASSERT_TRUE(first) << first.error().to_string();
  ASSERT_TRUE(again);
  EXPECT_EQ(first->cores.size(), again->cores.size());
  EXPECT_EQ(first->devices.size(), again->devices.size());
  std::size_t usable = 0;
  for (const Core& core : again->cores) usable += core.usable_pus.size();
  EXPECT_NE(usable, 0u);
}

TEST_F(ThisMachine, RatesOfPortsAddUp) {
  Machine machine = make_machine(1, 1);
  Device& nic = machine.devices[add_nic(&machine, 0, 0)];
  nic.rdma_devices = {"mlx5_0"};
  nic.net_devices = {"eth0"};
  write("/sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("/sys/class/infiniband/mlx5_0/ports/2/rate", "100 Gb/sec (4X EDR)\n");
  write("/sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
  write("/sys/class/net/eth0/speed", "100000\n");  // the same port: not counted again
  read_nic_rates(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.devices[0].rate, 25e9);
  EXPECT_FALSE(machine.devices[0].rate_is_down);
  write("/sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
  read_nic_rates(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.devices[0].rate, 12.5e9);
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  read_nic_rates(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.devices[0].rate, 25e9);
  EXPECT_TRUE(machine.devices[0].rate_is_down);
}

TEST_F(ThisMachine, ASpeedThatIsNotKnownIsNotOne) {
  Machine machine = make_machine(1, 1);
  Device& nic = machine.devices[add_nic(&machine, 0, 0)];
  nic.rdma_devices.clear();
  nic.net_devices = {"eth0"};
  read_nic_rates(root_, &machine);
  EXPECT_EQ(machine.devices[0].rate, 0);
  for (const char* const speed : {"-1\n", "", "nan\n", "inf\n", "fast\n"}) {
    write("/sys/class/net/eth0/speed", speed);
    read_nic_rates(root_, &machine);
    EXPECT_EQ(machine.devices[0].rate, 0) << speed;
    EXPECT_FALSE(machine.devices[0].rate_is_down) << speed;
  }
  write("/sys/class/net/eth0/speed", "25000\n");
  read_nic_rates(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.devices[0].rate, 3.125e9);
}

// The kernel gives no speed without a link, or -1.
TEST_F(ThisMachine, ANicWithoutALinkIsDown) {
  Machine machine = make_machine(1, 1);
  Device& nic = machine.devices[add_nic(&machine, 0, 0)];
  nic.rdma_devices.clear();
  nic.net_devices = {"eth0", "eth1"};
  write("/sys/class/net/eth0/speed", "25000\n");
  write("/sys/class/net/eth0/operstate", "up\n");
  write("/sys/class/net/eth1/operstate", "lowerlayerdown\n");
  read_nic_rates(root_, &machine);
  EXPECT_FALSE(machine.devices[0].rate_is_down);
  EXPECT_DOUBLE_EQ(machine.devices[0].rate, 3.125e9);
  for (const char* const speed : {"-1\n", ""}) {  // somebody pulls the cable
    write("/sys/class/net/eth0/speed", speed);
    write("/sys/class/net/eth0/operstate", "down\n");
    read_nic_rates(root_, &machine);
    EXPECT_TRUE(machine.devices[0].rate_is_down) << speed;
  }
  for (const char* const state : {"unknown\n", "dormant\n"}) {  // as of drivers that do not say
    write("/sys/class/net/eth0/operstate", state);
    read_nic_rates(root_, &machine);
    EXPECT_FALSE(machine.devices[0].rate_is_down) << state;
  }
}

TEST_F(ThisMachine, AnRdmaPortThatIsNotActiveIsDownWithoutARate) {
  Machine machine = make_machine(1, 1);
  Device& nic = machine.devices[add_nic(&machine, 0, 0)];
  nic.rdma_devices = {"mlx5_0"};
  nic.net_devices = {"eth0"};
  write("/sys/class/net/eth0/operstate", "up\n");  // not asked: the port says
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  read_nic_rates(root_, &machine);
  EXPECT_TRUE(machine.devices[0].rate_is_down);
  write("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  read_nic_rates(root_, &machine);
  EXPECT_FALSE(machine.devices[0].rate_is_down);
}

TEST_F(ThisMachine, TheSmallestQuotaOnTheWayUpHolds) {
  Machine machine = make_machine(1, 1);
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  read_cpu_quota(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.cpu_quota, 1.5);
}

TEST_F(ThisMachine, QuotasOfVersion1AndNone) {
  Machine machine = make_machine(1, 1);
  read_cpu_quota(root_, &machine);
  EXPECT_EQ(machine.cpu_quota, 0);
  write("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/ab\nrubbish\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
  read_cpu_quota(root_, &machine);
  EXPECT_DOUBLE_EQ(machine.cpu_quota, 0.5);
}

}  // namespace
}  // namespace fairlead::topology
