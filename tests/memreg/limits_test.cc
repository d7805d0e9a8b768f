#include "memreg/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <limits>
#include <string>

#include "tests/made_machine.h"

namespace fairlead::memreg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMi = std::uint64_t{1} << 20, kGi = std::uint64_t{1} << 30;

TEST(Fits, NotMoreThanTheControlGroup) {
  made::Machine machine;
  made::make_container(machine);
  EXPECT_TRUE(check_fits(512 * kMi, machine.files()).ok());  // all of it, though nearly all is in use
  const Status refused = check_fits(512 * kMi + 1, machine.files());
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("536870913 bytes"), HasSubstr("/sys/fs/cgroup/memory.max, is 512.0 MiB"),
                    HasSubstr("docker run --memory")));
}

TEST(Fits, WithSwapAndFreeHugePages) {
  made::Machine machine;
  made::make_container(machine);
  machine.file("/sys/fs/cgroup/memory.swap.max", "max");
  EXPECT_TRUE(check_fits(512 * kMi + kGi, machine.files()).ok());
  EXPECT_FALSE(check_fits(512 * kMi + kGi + 1, machine.files()).ok());
  machine.file("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "3");
  EXPECT_TRUE(check_fits(512 * kMi + 4 * kGi, machine.files()).ok());
  EXPECT_FALSE(check_fits(512 * kMi + 4 * kGi + 1, machine.files()).ok());
}

TEST(Fits, NotMoreThanTheMachine) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  EXPECT_TRUE(check_fits(17 * kGi, machine.files()).ok());
  EXPECT_THAT(check_fits(17 * kGi + 1, machine.files()).message(),
              HasSubstr("this machine has 17.0 GiB of memory and swap"));
  EXPECT_FALSE(check_fits(std::numeric_limits<std::uint64_t>::max(), machine.files()).ok());
}

TEST(Fits, WhereNothingIsKnownAndWhatIsSmall) {
  made::Machine machine;
  EXPECT_TRUE(check_fits(std::numeric_limits<std::uint64_t>::max(), machine.files()).ok());
  made::make_plain(machine, 1, 2);
  made::set_group(machine, "/user.slice", "1048576", "0", "0");
  EXPECT_TRUE(check_fits(kCheckedBytes - 1, machine.files()).ok());  // the files are not read for so little
  EXPECT_FALSE(check_fits(kCheckedBytes, machine.files()).ok());
}

std::string met(const made::Machine& machine, std::uint64_t bytes, Mapped what = Mapped::kMemory, int error = ENOMEM) {
  return mapping_limit(bytes, what, error, machine.files());
}

TEST(MappingLimit, OfTheProcess) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  made::set_status(machine, {.size = 900'000, .data = 500'000});
  made::set_limits(machine, {.space = "1073741824"});
  EXPECT_THAT(met(machine, 200 * kMi), HasSubstr("RLIMIT_AS is 1073741824 bytes, of which 921600000 are in use"));
  EXPECT_THAT(met(machine, 100 * kMi), HasSubstr("vm.overcommit_memory and"));  // it fits: something else
  made::set_limits(machine, {.data = "536870912"});
  EXPECT_THAT(met(machine, 100 * kMi), HasSubstr("RLIMIT_DATA is 536870912 bytes"));
  EXPECT_THAT(met(machine, 100 * kMi, Mapped::kFile), HasSubstr("see vm.max_map_count"));
}

TEST(MappingLimit, TheNumberOfMappings) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  std::string maps;
  for (int i = 0; i < 100; ++i) maps += "00400000-00401000 r-xp 00000000\n";
  machine.file("/proc/self/maps", maps).file("/proc/sys/vm/max_map_count", "100");
  EXPECT_THAT(met(machine, 4096),
              AllOf(HasSubstr("vm.max_map_count is 100"), HasSubstr("sysctl -w vm.max_map_count=400")));
  EXPECT_THAT(met(machine, 4096, Mapped::kFile), HasSubstr("vm.max_map_count is 100"));
  machine.file("/proc/sys/vm/max_map_count", "65530");
  EXPECT_THAT(met(machine, 4096), HasSubstr("free memory"));
}

TEST(MappingLimit, WhatIsPromised) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  EXPECT_THAT(met(machine, 18 * kGi), HasSubstr("17.0 GiB of memory and swap"));
  machine.file("/proc/sys/vm/overcommit_memory", "2");
  EXPECT_THAT(met(machine, 2 * kGi), HasSubstr("7.0 GiB of 8.0 GiB (CommitLimit)"));
  EXPECT_THAT(met(machine, kGi / 2), HasSubstr("free memory"));
  machine.file("/proc/sys/vm/overcommit_memory", "1");
  EXPECT_THAT(met(machine, 18 * kGi), HasSubstr("free memory"));
  EXPECT_THAT(met(machine, 18 * kGi, Mapped::kMemory, EPERM), HasSubstr("free memory"));
}

}  // namespace
}  // namespace fairlead::memreg
