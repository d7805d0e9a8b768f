#include "datapath/transfer/tensor_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace fairlead::datapath {
namespace {

TensorSpec make(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides, std::uint64_t offset = 0) {
  TensorSpec spec;
  spec.dtype = DType::kI16;
  spec.rank = static_cast<std::uint8_t>(shape.size());
  std::copy(shape.begin(), shape.end(), spec.shape.begin());
  std::copy(strides.begin(), strides.end(), spec.strides.begin());
  spec.offset = offset;
  return spec;
}

TEST(TensorPlan, ContiguousTensorsAreOneRun) {
  auto runs = plan_tensor(make({2, 3, 4}, {12, 4, 1}), make({2, 3, 4}, {12, 4, 1}, 100), 10);
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_EQ((*runs)[0].b, 100u);
  EXPECT_EQ((*runs)[0].length, 48u);
}

TEST(TensorPlan, ScalarsAndEmptyTensors) {
  auto scalar = plan_tensor(make({}, {}, 4), make({}, {}, 6), 10);
  ASSERT_TRUE(scalar);
  ASSERT_EQ(scalar->size(), 1u);
  EXPECT_EQ((*scalar)[0].a, 4u);
  EXPECT_EQ((*scalar)[0].length, 2u);
  auto empty = plan_tensor(make({3, 0}, {0, 1}), make({3, 0}, {0, 1}), 10);
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->empty());
}

// Every element of the one meets the same element of the other, once.
TEST(TensorPlan, RunsCoverEveryElementOnce) {
  const TensorSpec a = make({3, 4, 5}, {40, 10, 2}, 6);       // every second element
  const TensorSpec b = make({3, 4, 5}, {1, 3, 12});           // the reverse order of dimensions
  const TensorSpec padded = make({3, 4, 5}, {32, 8, 1}, 10);  // rows with padding
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, padded), std::pair(padded, padded), std::pair(padded, a)}) {
    auto runs = plan_tensor(x, y, 1000);
    ASSERT_TRUE(runs);
    std::set<std::pair<std::uint64_t, std::uint64_t>> expected, got;
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) {
        for (std::int64_t k = 0; k < 5; ++k) {
          const auto at = [&](const TensorSpec& s) {
            return s.offset + static_cast<std::uint64_t>(2 * (i * s.strides[0] + j * s.strides[1] + k * s.strides[2]));
          };
          expected.emplace(at(x), at(y));
        }
      }
    }
    for (const TensorRun& run : *runs) {
      for (std::uint64_t byte = 0; byte < run.length; byte += 2) got.emplace(run.a + byte, run.b + byte);
    }
    EXPECT_EQ(got, expected);
  }
  EXPECT_EQ(plan_tensor(padded, padded, 1000)->size(), 12u);
}

TEST(TensorPlan, RefusesWhatDiffersAndWhatIsTooScattered) {
  EXPECT_FALSE(plan_tensor(make({2}, {1}), make({3}, {1}), 10));
  auto scattered = plan_tensor(make({100}, {2}), make({100}, {1}), 99);
  ASSERT_FALSE(scattered);
  EXPECT_EQ(scattered.error().code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace fairlead::datapath
