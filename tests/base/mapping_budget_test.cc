#include "base/system/mapping_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/made_machine.h"

namespace fairlead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void set_mappings(made::Machine& machine, int used, int limit) {
  std::string maps;
  for (int i = 0; i < used; ++i) maps += "00400000-00401000 r-xp 00000000\n";
  machine.file("/proc/self/maps", maps).file("/proc/sys/vm/max_map_count", std::to_string(limit));
}

TEST(MappingBudget, SomeAreLeftForOthers) {
  made::Machine machine;
  constexpr int kSpare = MappingBudget::kSpare;
  set_mappings(machine, 99, 102 + kSpare);  // `used` and the empty line that ends the file
  MappingBudget budget(machine.files());
  EXPECT_TRUE(budget.take(2).ok());
  const Status refused = budget.take(3);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("has 100 mappings"), HasSubstr("vm.max_map_count is 134"),
                                       HasSubstr("sysctl -w vm.max_map_count=536")));
  set_mappings(machine, 50, 102 + kSpare);
  EXPECT_TRUE(budget.take(3).ok()) << "others have gone meanwhile";
}

TEST(MappingBudget, AreCountedAgainWhenAQuarterHasBeenTaken) {
  made::Machine machine;
  set_mappings(machine, 99, 1032);
  MappingBudget budget(machine.files());
  ASSERT_TRUE(budget.take(100).ok());  // of 900: 200 may be taken now
  set_mappings(machine, 99, 100);      // which nobody reads yet
  EXPECT_TRUE(budget.take(150).ok());
  EXPECT_TRUE(budget.take(50).ok());
  EXPECT_FALSE(budget.take(1).ok());
  EXPECT_FALSE(budget.take(1).ok());
}

TEST(MappingBudget, WhereNothingIsKnown) {
  made::Machine machine;
  MappingBudget budget(machine.files());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.take(5000).ok());
}

}  // namespace
}  // namespace fairlead
