// The turns of single checks that the golden machines do not take.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "doctor/doctor.h"
#include "tests/made_machine.h"

namespace fairlead::doctor {
namespace {

struct Expected {
  Verdict verdict;
  std::string words;
};

void expect_finding(const made::Machine& machine, const std::string& name, const Expected& expected,
                    Probes probes = {}) {
  const std::vector<std::string> only = {name};
  const std::vector<Answer> answers = examine(read_subject(machine.files(), std::move(probes)), only);
  ASSERT_EQ(answers.size(), 1u) << name;
  const Finding& finding = answers.front().finding;
  std::string all = finding.seen;
  for (const std::string& command : finding.commands) all += "\n" + command;
  EXPECT_EQ(to_string(finding.verdict), to_string(expected.verdict)) << name << ": " << all;
  EXPECT_NE(all.find(expected.words), std::string::npos) << name << ": " << all;
}

TEST(Memlock, TheHostsCapabilityLiftsItAndAContainersDoesNot) {
  made::Machine machine;
  made::make_pvrdma_guest(machine);
  expect_finding(machine, "memlock", {Verdict::kProblem, "64.0 KiB"});
  made::set_status(machine, {.capabilities = "000001ffffffffff"});
  expect_finding(machine, "memlock", {Verdict::kOk, "CAP_IPC_LOCK"});
  machine.file("/proc/self/uid_map", "0 100000 65536");
  expect_finding(machine, "memlock", {Verdict::kProblem, "ulimit -l"});
  made::set_limits(machine, {.locked = "1073741824"});
  expect_finding(machine, "memlock", {Verdict::kAdvice, "1.0 GiB"});
}

TEST(TransparentHugePages, SharedMemoryHasASettingOfItsOwn) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  const std::string file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  machine.file(file, "always within_size [advise] never deny force");
  expect_finding(machine, "transparent-huge-pages", {Verdict::kOk, "madvise, and advise for shared memory"});
  machine.file(file, "always within_size advise [never] deny force");
  expect_finding(machine, "transparent-huge-pages",
                 {Verdict::kAdvice, "never for shared memory\necho advise > " + file});
  machine.file(file, "always within_size advise never [deny] force");
  expect_finding(machine, "transparent-huge-pages",
                 {Verdict::kAdvice, "deny for shared memory\necho advise > " + file});
}

TEST(ProcessCopies, AreWhatYamaAllows) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  expect_finding(machine, "process-copies", {Verdict::kNotHere, "no Yama"});
  const std::string file = "/proc/sys/kernel/yama/ptrace_scope";
  machine.file(file, "0");
  expect_finding(machine, "process-copies", {Verdict::kOk, "ptrace_scope is 0"});
  machine.file(file, "1");
  expect_finding(machine, "process-copies", {Verdict::kAdvice, "that it has started"});
  machine.file(file, "2");
  expect_finding(machine, "process-copies", {Verdict::kAdvice, "sysctl -w kernel.yama.ptrace_scope=0"});
  machine.file(file, "3");
  expect_finding(machine, "process-copies", {Verdict::kAdvice, "until the machine starts anew"});
  machine.file(file, "?");
  expect_finding(machine, "process-copies", {Verdict::kNotHere, "no Yama"});
}

TEST(CgroupMemory, OfVersion1) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  machine.file("/proc/self/cgroup", "4:memory:/docker/ab\n0::/");
  const std::string group = "/sys/fs/cgroup/memory/docker/ab/";
  machine.file(group + "memory.limit_in_bytes", "1073741824").file(group + "memory.usage_in_bytes", "1070000000");
  expect_finding(machine, "cgroup-memory", {Verdict::kAdvice, "docker/ab/memory.limit_in_bytes is 1.0 GiB"});
  machine.file(group + "memory.stat", "cache 900000000\ntotal_inactive_file 900000000");
  expect_finding(machine, "cgroup-memory", {Verdict::kOk, "162.1 MiB are in use"});
  machine.file(group + "memory.limit_in_bytes", "9223372036854771712");
  expect_finding(machine, "cgroup-memory", {Verdict::kNotHere, "no control group"});
}

TEST(IsolatedCores, AreFineWhereThisProcessMayUseThem) {
  made::Machine machine;
  made::make_untuned_gpu_server(machine);
  expect_finding(machine, "isolated-cores", {Verdict::kAdvice, "taskset --cpu-list 0-5,6-7"});
  made::set_status(machine, {.capabilities = "0", .cores = "0-6"});
  expect_finding(machine, "isolated-cores", {Verdict::kOk, "6-7 are isolated"});
}

TEST(Acs, IsHiddenFromUsers) {
  made::Machine machine;
  made::make_untuned_gpu_server(machine);
  const std::string bridge = "/sys/bus/pci/devices/0000:16:00.0/config";
  expect_finding(machine, "acs", {Verdict::kAdvice, "setpci -s 0000:16:00.0 ECAP_ACS+6.w=0000"});
  machine.file(bridge, made::bridge_config(0));
  expect_finding(machine, "acs", {Verdict::kOk, "no bridge"});
  machine.file(bridge, std::string(63, '\0'));
  expect_finding(machine, "acs", {Verdict::kNotHere, "as root"});
  std::string loop = made::bridge_config(0x1d);  // a list of capabilities that never ends
  loop[0x102] = 1, loop[0x103] = 0x10;
  machine.file(bridge, loop);
  expect_finding(machine, "acs", {Verdict::kOk, "no bridge"});
}

TEST(GpuDirect, ByEitherWay) {
  made::Machine machine;
  made::make_untuned_gpu_server(machine);
  expect_finding(machine, "gpu-direct", {Verdict::kAdvice, "nvidia-peermem"});
  machine.file("/sys/module/nvidia_peermem/refcnt", "0");
  expect_finding(machine, "gpu-direct", {Verdict::kOk, "peermem"});
  machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03");
  expect_finding(machine, "gpu-direct", {Verdict::kOk, "dma-buf, and peermem"});
  machine.file("/proc/sys/kernel/osrelease", "5.10.0-33-amd64").without("/sys/module/nvidia_peermem");
  expect_finding(machine, "gpu-direct", {Verdict::kAdvice, "Linux 5.12"});
  machine.without("/proc/driver");
  expect_finding(machine, "gpu-direct", {Verdict::kProblem, "modprobe nvidia"});
}

TEST(Bar1, LargeWindowsAreFine) {
  made::Machine machine;
  made::make_untuned_gpu_server(machine);
  expect_finding(machine, "bar1", {Verdict::kAdvice, "0000:18:00.0 has 256.0 MiB"});
  machine.file("/sys/bus/pci/devices/0000:18:00.0/resource",
               "0x0000380000000000 0x0000380fffffffff 0x000000000014220c");
  expect_finding(machine, "bar1", {Verdict::kOk, "64.0 GiB"});
}

TEST(RdmaAccess, SaysWhichFileIsMissing) {
  made::Machine machine;
  made::make_tuned_server(machine);
  machine.without("/dev/infiniband/uverbs1");
  expect_finding(machine, "rdma-access", {Verdict::kProblem, "mlx5_1 is here, but /dev/infiniband/uverbs1 is not"});
  machine.file("/run/.containerenv", "");
  expect_finding(machine, "rdma-access", {Verdict::kProblem, "docker run --device /dev/infiniband/uverbs1"});
  machine.without("/sys/class/infiniband_verbs");
  expect_finding(machine, "rdma-access", {Verdict::kProblem, "modprobe ib_uverbs"});
  machine.without("/sys/class/infiniband");
  expect_finding(machine, "rdma-access", {Verdict::kProblem, "modprobe mlx5_ib"});
}

TEST(RdmaAccess, TheKernelsSoftwareDevicesAreNoHardware) {
  made::Machine machine;
  made::make_small_guest(machine);
  made::add_rdma(machine, "rxe0", "0000:00:03.0", "virtio-pci", "eth0", "4: ACTIVE", 0);
  machine.file("/dev/infiniband/uverbs0", "");
  expect_finding(machine, "rdma-access", {Verdict::kOk, "rxe0 by /dev/infiniband/uverbs0"});
  expect_finding(machine, "pfc", {Verdict::kNotHere, "no RoCE hardware"});
  expect_finding(machine, "iommu", {Verdict::kNotHere, "no RDMA hardware"});
  expect_finding(machine, "mtu", {Verdict::kAdvice, "eth0 has 1500, RoCE 1024"});
}

TEST(Commands, RepeatOnlyPlainWords) {
  made::Machine machine;
  made::make_tuned_server(machine);
  machine.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  machine.file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "$(reboot)");
  machine.file("/sys/bus/pci/devices/0000:3b:00.0/net/x;reboot/mtu", "1500");
  for (const auto& [check, finding] : examine(read_subject(machine.files(), {}))) {
    for (const std::string& command : finding.commands) EXPECT_EQ(command.find("reboot"), command.npos) << command;
  }
  EXPECT_TRUE(is_plain("0000:3b:00.0") && is_plain("ens0np0") && is_plain("0-3,8"));
  for (const char* const word : {"", "-rf", "..", "a b", "a;b", "$x", "a/b", "\xff"})
    EXPECT_FALSE(is_plain(word)) << word;
}

TEST(RdmaPorts, OneThatIsDownBesideOneThatIsUp) {
  made::Machine machine;
  made::make_tuned_server(machine);
  machine.file("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  expect_finding(machine, "rdma-ports", {Verdict::kAdvice, "ip link set ens1np0 up"});
  machine.file("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
  expect_finding(machine, "rdma-ports", {Verdict::kProblem, "down: mlx5_0 port 1, mlx5_1 port 1"});
}

TEST(Mtu, OfRoceIsTheLargestThatFits) {
  made::Machine machine;
  made::make_tuned_server(machine);
  for (const auto& [interface, roce] : {std::pair{"1500", "RoCE 1024"}, {"2200", "RoCE 2048"}, {"4100", "RoCE 2048"}}) {
    machine.file("/sys/class/net/ens0np0/mtu", interface);
    expect_finding(machine, "mtu", {Verdict::kAdvice, roce});
  }
  machine.file("/sys/class/net/ens0np0/mtu", "4200");
  expect_finding(machine, "mtu", {Verdict::kOk, "ens0np0 has 4200, RoCE 4096"});
}

TEST(Pfc, WhatTheDriverSays) {
  made::Machine machine;
  made::make_tuned_server(machine);
  const auto with = [](std::optional<std::uint8_t> mask) {
    return Probes{.userfaultfd = {}, .pfc = [mask](const std::string&) { return mask; }};
  };
  expect_finding(machine, "pfc", {Verdict::kOk, "pauses priority 3, 5"}, with(1 << 3 | 1 << 5));
  expect_finding(machine, "pfc", {Verdict::kAdvice, "dcb pfc set dev ens0np0"}, with(0));
  expect_finding(machine, "pfc", {Verdict::kNotHere, "do not say"}, with(std::nullopt));
  expect_finding(machine, "pfc", {Verdict::kNotHere, "do not say"});
}

TEST(Pvrdma, ReservationShowsInTheBalloon) {
  made::Machine machine;
  made::make_pvrdma_guest(machine);
  expect_finding(machine, "pvrdma", {Verdict::kProblem, "512.0 MiB"});
  machine.file("/sys/kernel/debug/vmmemctl",
               "target                :             2048\ncurrent               :              512");
  expect_finding(machine, "pvrdma", {Verdict::kProblem, "took 2.0 MiB"});
  machine.file("/sys/kernel/debug/vmmemctl", "current:  0 pages");
  expect_finding(machine, "pvrdma", {Verdict::kOk, "ens192"});
  machine.without("/sys/kernel/debug");
  expect_finding(machine, "pvrdma", {Verdict::kAdvice, "Reserve all guest memory"});
  machine.without("/sys/class/infiniband/vmw_pvrdma0/ports/1/gid_attrs");
  expect_finding(machine, "pvrdma", {Verdict::kProblem, "vmxnet3"});
}

TEST(Userfaultfd, WhatTheKernelAnswers) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  const auto with = [](int error) { return Probes{.userfaultfd = [error] { return error; }, .pfc = {}}; };
  expect_finding(machine, "userfaultfd", {Verdict::kOk, "allowed"}, with(0));
  expect_finding(machine, "userfaultfd", {Verdict::kAdvice, "seccomp"}, with(EPERM));
  expect_finding(machine, "userfaultfd", {Verdict::kAdvice, "5.11"}, with(EINVAL));
  expect_finding(machine, "userfaultfd", {Verdict::kNotHere, "itself"});
}

TEST(CpuQuota, AWholeMachineIsNoLimit) {
  made::Machine machine;
  made::make_container(machine);
  expect_finding(machine, "cpu-quota", {Verdict::kAdvice, "1.50 of 8 cores, held back in 12 periods"});
  machine.file("/sys/fs/cgroup/cpu.max", "800000 100000").file("/sys/fs/cgroup/cpu.stat", "nr_throttled 0");
  expect_finding(machine, "cpu-quota", {Verdict::kOk, "8.00 of 8 cores"});
  machine.file("/sys/fs/cgroup/cpu.max", "max 100000");
  expect_finding(machine, "cpu-quota", {Verdict::kNotHere, "no control group"});
}

}  // namespace
}  // namespace fairlead::doctor
