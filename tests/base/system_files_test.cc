#include "base/system/system_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/system/cgroup.h"
#include "base/system/process_limits.h"
#include "tests/made_machine.h"

namespace fairlead {
namespace {

TEST(SystemFiles, LinesNumbersAndFields) {
  made::Machine machine;
  machine.file("/a/lines", "  17 apples \nsecond").file("/a/max", "max").file("/a/empty", "");
  machine.file("/a/fields", "MemTotal:   16 kB\nMem:   3 kB");
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.line("/a/lines"), "17 apples");
  EXPECT_EQ(files.number("/a/lines"), 17u);
  EXPECT_EQ(files.number("/a/max"), std::nullopt);
  EXPECT_EQ(files.line("/a/empty"), std::nullopt);
  EXPECT_EQ(files.line("/a/none"), std::nullopt);
  EXPECT_EQ(files.field("/a/fields", "Mem"), "3 kB");
  EXPECT_EQ(files.field("/a/fields", "MemT"), std::nullopt);
  EXPECT_EQ(files.bytes("/a/max", 2), "ma");
  EXPECT_EQ(files.bytes("/a/none", 2), "");
  EXPECT_EQ(files.list("/a"), (std::vector<std::string>{"empty", "fields", "lines", "max"}));
  EXPECT_TRUE(files.list("/none").empty());
  EXPECT_TRUE(files.exists("/a") && files.usable("/a/max"));
  EXPECT_FALSE(files.exists("/b") || files.usable("/b"));
}

TEST(SystemFiles, LinksByTheirLastName) {
  made::Machine machine;
  machine.file("/bus/drivers/mlx5_core/uevent", "").link("/class/device/driver", "/bus/drivers/mlx5_core");
  EXPECT_EQ(machine.files().link_name("/class/device/driver"), "mlx5_core");
  EXPECT_EQ(machine.files().link_name("/bus/drivers"), "");
}

TEST(SystemFiles, WordsAndNumbersOfText) {
  EXPECT_EQ(split_blanks(" a\t bc  "), (std::vector<std::string>{"a", "bc"}));
  EXPECT_TRUE(split_blanks(" ").empty());
  EXPECT_EQ(leading_number(" 12-3"), 12u);
  EXPECT_EQ(leading_number("-1"), std::nullopt);
  EXPECT_EQ(leading_number("99999999999999999999999"), std::nullopt);
}

TEST(Cgroup, FoldersFromTheOwnToTheRoot) {
  made::Machine machine;
  machine.file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/ab\nrubbish\n1:name=systemd:/\n0::/../other");
  std::vector<std::string> paths;
  for (const CgroupFolder& folder : cgroup_folders(machine.files(), "memory")) paths.push_back(folder.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"/sys/fs/cgroup/memory/docker/ab", "/sys/fs/cgroup/memory/docker",
                                             "/sys/fs/cgroup/memory", "/sys/fs/cgroup"}));
}

TEST(GroupMemory, TheTightestOfTheAncestors) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  machine.file("/proc/self/cgroup", "0::/a/b/c");
  made::set_group(machine, "/a/b/c", "max", "1000");
  made::set_group(machine, "/a/b", "4294967296", "2000", "max");
  made::set_group(machine, "/a", "1073741824", "3000", "0");
  const auto group = tightest_group_memory(machine.files());
  ASSERT_TRUE(group);
  EXPECT_EQ(group->limit, std::uint64_t{1} << 30);
  EXPECT_EQ(group->most, std::uint64_t{1} << 30);
  EXPECT_EQ(group->used, 3000u);
  EXPECT_EQ(group->file, "/sys/fs/cgroup/a/memory.max");
  made::set_group(machine, "/a", "max", "3000");
  EXPECT_EQ(tightest_group_memory(machine.files())->most, (std::uint64_t{4} << 30) + (std::uint64_t{1} << 30));  // swap
}

TEST(GroupMemory, Version1CountsAncestorsOnlyWhereTheyCount) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  machine.file("/proc/self/cgroup", "4:memory:/a/b");
  const std::string folder = "/sys/fs/cgroup/memory";
  machine.file(folder + "/a/b/memory.limit_in_bytes", "4000000000");
  machine.file(folder + "/a/memory.limit_in_bytes", "1000000").file(folder + "/a/memory.use_hierarchy", "0");
  EXPECT_EQ(tightest_group_memory(machine.files())->limit, 4'000'000'000u);
  machine.file(folder + "/a/memory.use_hierarchy", "1");
  EXPECT_EQ(tightest_group_memory(machine.files())->limit, 1'000'000u);
  machine.file(folder + "/a/memory.memsw.limit_in_bytes", "1500000");
  EXPECT_EQ(tightest_group_memory(machine.files())->most, 1'500'000u);
}

TEST(ProcessLimits, LockedMemoryAndWhoIsExempt) {
  made::Machine machine;
  made::make_plain(machine, 1, 2);
  made::set_status(machine, {.pinned = 1024});
  LockedMemory locked = read_locked_memory(machine.files());
  EXPECT_EQ(locked.limit, std::uint64_t{8} << 20);
  EXPECT_EQ(locked.pinned, std::uint64_t{1} << 20);
  EXPECT_FALSE(locked.exempt);
  made::set_status(machine, {.capabilities = "0000000000004000"});
  EXPECT_TRUE(read_locked_memory(machine.files()).exempt);
  machine.file("/proc/self/uid_map", "0 1000 1");  // root of its own user namespace only
  EXPECT_FALSE(read_locked_memory(machine.files()).exempt);
  made::set_limits(machine, {.locked = "unlimited"});
  EXPECT_EQ(read_locked_memory(machine.files()).limit, std::nullopt);
}

TEST(ProcessLimits, ThisProcess) {
  EXPECT_GT(read_mappings(SystemFiles()).used, 0u);
  const auto bound = memory_bound(SystemFiles());
  if (!bound) GTEST_SKIP() << "/proc/meminfo cannot be read here";
  EXPECT_GT(bound->bytes, 0u);
}

}  // namespace
}  // namespace fairlead
