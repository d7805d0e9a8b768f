#include "datapath/lane/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace fairlead::datapath {
namespace {

TEST(Ring, BehavesAsADeque) {
  Ring<int> ring;
  std::deque<int> model;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    switch (random() % 5) {
      case 0:
      case 1:
        ring.push_back(i);
        model.push_back(i);
        break;
      case 2:
        ring.push_front(i);
        model.push_front(i);
        break;
      case 3:
        if (!model.empty()) {
          EXPECT_EQ(ring.pop_front(), model.front());
          model.pop_front();
        }
        break;
      default:
        if (!model.empty()) {
          ring.pop_back();
          model.pop_back();
        }
    }
    ASSERT_EQ(ring.size(), model.size());
    if (!model.empty()) {
      ASSERT_EQ(ring.front(), model.front());
      ASSERT_EQ(ring.back(), model.back());
      const std::size_t at = random() % model.size();
      ASSERT_EQ(ring[at], model[at]);
    }
  }
  ring.clear();
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace fairlead::datapath
