// Which pages an arena gets, and why not better ones.
#include "memreg/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace fairlead::memreg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t k64M = std::size_t{64} << 20, k2G = std::size_t{2} << 30;

TEST(PageChoice, TakesTheBestThatIsFree) {
  const PageSupply all{{2000, 2000}, {4, 4}, "madvise"};
  EXPECT_EQ(choose_pages(k2G, all).kind, PageKind::kHuge1G);
  EXPECT_EQ(choose_pages(k2G, all).why, "1 GiB huge pages");
  EXPECT_EQ(choose_pages(k64M, all).kind, PageKind::kHuge2M);
  EXPECT_EQ(choose_pages(k64M, all).why, "2 MiB huge pages");
  EXPECT_EQ(choose_pages(k64M, all, PageKind::kTransparent).kind, PageKind::kTransparent);
  EXPECT_EQ(choose_pages(k64M, all, PageKind::kOrdinary).why, "ordinary pages");
}

TEST(PageChoice, SaysWhatIsMissingAndWhatToDo) {
  const PageChoice fewer = choose_pages(k2G, {{2000, 2100}, {1, 3}, "madvise"});
  EXPECT_EQ(fewer.kind, PageKind::kHuge2M);
  EXPECT_EQ(fewer.why,
            "2 MiB huge pages; 2 1 GiB pages are needed and 1 of 3 are free: boot with hugepagesz=1G hugepages=4");
  const PageChoice none = choose_pages(k64M, {{31, 40}, {}, "always"});
  EXPECT_EQ(none.kind, PageKind::kTransparent);
  EXPECT_THAT(none.why, AllOf(HasSubstr("transparent huge pages"), HasSubstr("32 2 MiB pages are needed"),
                              HasSubstr("31 of 40 are free"), HasSubstr("sysctl -w vm.nr_hugepages=41")));
  const PageChoice never = choose_pages(k64M, {{}, {}, "never"});
  EXPECT_EQ(never.kind, PageKind::kOrdinary);
  EXPECT_THAT(never.why, AllOf(HasSubstr("ordinary pages"), HasSubstr("set to 'never'"), HasSubstr("madvise")));
  EXPECT_THAT(choose_pages(k64M, {}).why, HasSubstr("the kernel has no transparent huge pages"));
}

TEST(PageChoice, LosesNoMoreThanAnEighth) {
  const PageSupply all{{2000, 2000}, {4, 4}, "madvise"};
  const std::size_t page = std::size_t{2} << 20;
  EXPECT_EQ(choose_pages(8 * page + page / 2, all).kind, PageKind::kHuge2M);
  EXPECT_EQ(choose_pages(page + page / 2, all).kind, PageKind::kTransparent);
  EXPECT_THAT(choose_pages(page + page / 2, all).why, HasSubstr("do not fit"));
  EXPECT_EQ(choose_pages(4096, all).kind, PageKind::kTransparent);
  EXPECT_EQ(choose_pages(k2G - k64M, all).kind, PageKind::kHuge1G);
  EXPECT_THAT(choose_pages(k64M, all).why, Not(HasSubstr("1 GiB")));
}

class PageSupplyTest : public testing::Test {
 protected:
  PageSupplyTest() : root_(testing::TempDir() + "fairlead-pages-" + std::to_string(::getpid())) {}
  ~PageSupplyTest() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::string root_;
};

TEST_F(PageSupplyTest, IsReadFromSysfs) {
  write("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "10");
  write("kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "3");
  write("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "16");
  write("kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  write("kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force");
  write("devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "4");
  write("devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "8");
  const PageSupply all = page_supply(-1, false, root_);
  EXPECT_EQ(all.of_2m.free, 7u) << "three are promised";
  EXPECT_EQ(all.of_2m.total, 16u);
  EXPECT_EQ(all.of_1g.total, 0u);
  EXPECT_EQ(all.transparent, "madvise");
  EXPECT_EQ(page_supply(-1, true, root_).transparent, "never");
  EXPECT_EQ(page_supply(1, false, root_).of_2m.free, 4u);
  EXPECT_EQ(page_supply(1, false, root_).transparent, "madvise");
}

TEST_F(PageSupplyTest, IsNothingWhereTheKernelSaysNothing) {
  const PageSupply none = page_supply(0, false, root_);
  EXPECT_EQ(none.of_2m.free, 0u);
  EXPECT_EQ(none.transparent, "");
  write("kernel/mm/transparent_hugepage/enabled", "nonsense");
  EXPECT_EQ(page_supply(0, false, root_).transparent, "");
}

TEST(PageKinds, HaveAWordForEach) {
  EXPECT_EQ(to_string(PageKind::kOrdinary), "ordinary");
  EXPECT_EQ(to_string(PageKind::kHuge1G), "1G");
  EXPECT_EQ(page_bytes(PageKind::kHuge2M), std::size_t{2} << 20);
  EXPECT_EQ(page_bytes(PageKind::kTransparent), page_size());
}

}  // namespace
}  // namespace fairlead::memreg
