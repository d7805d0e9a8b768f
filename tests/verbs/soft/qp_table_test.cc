// Numbers of queue pairs: in a partition, beyond it, and found again.
#include "verbs/soft/qp/qp_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace fairlead::soft {
namespace {

// Tables keep queue pairs only by reference.
Qp& some(std::size_t index) {
  static std::vector<std::uint64_t> memory(1 << 17);
  return reinterpret_cast<Qp&>(memory[index]);
}

// Fills the table and looks all up; the numbers in order.
std::vector<std::uint32_t> fill(QpTable& table) {
  std::vector<std::uint32_t> numbers;
  while (const std::uint32_t number = table.add(some(numbers.size()))) numbers.push_back(number);
  EXPECT_EQ(numbers.size(), table.limit());
  EXPECT_EQ(std::set(numbers.begin(), numbers.end()).size(), numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(table.find(numbers[i]), &some(i));
  return numbers;
}

TEST(QpTable, InAPartitionAllNumbersAreOfIt) {
  QpTable table(1);
  table.set_partition(7);
  for (const std::uint32_t number : fill(table)) ASSERT_EQ(number >> 16, 7U);
}

TEST(QpTable, BeyondAPartitionNumbersAreOfNone) {
  for (const unsigned partition : {0U, 1U, 249U}) {
    QpTable table(partition + 1);
    table.set_partition(static_cast<std::uint8_t>(partition), true);
    const auto numbers = fill(table);
    ASSERT_EQ(numbers.size(), 65536U);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_LT(numbers[i], 0xffffffU);
      ASSERT_EQ(table.in_partition(numbers[i]), i < 8192) << i;
      ASSERT_EQ(numbers[i] >> 16 >= QpTable::kFirstFree, i >= 8192) << i;
    }
    // One that rests has another number next time, and the old one is nobody's.
    for (const std::size_t i : {5U, 8191U, 8192U, 65535U}) {
      table.remove(numbers[i]);
      EXPECT_EQ(table.find(numbers[i]), nullptr);
      EXPECT_NE(table.add(some(i)), numbers[i]);
      EXPECT_EQ(table.find(numbers[i]), nullptr);
    }
  }
}

}  // namespace
}  // namespace fairlead::soft
