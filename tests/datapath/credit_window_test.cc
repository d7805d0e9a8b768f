#include "datapath/flow/credit_window.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

TEST(CreditWindow, CountsEvents) {
  CreditWindow window;
  EXPECT_FALSE(window.open()) << "before the peer has named its limits";
  window.set_limits({.events = 2});
  EXPECT_EQ(window.take(0), 1U);
  EXPECT_EQ(window.take(1'000'000), 2U);
  EXPECT_FALSE(window.open());
  window.consumed(1);
  EXPECT_TRUE(window.open());
  EXPECT_EQ(window.take(0), 3U);
  EXPECT_FALSE(window.open());
  window.consumed(3);
  EXPECT_TRUE(window.open());
}

TEST(CreditWindow, WeighsBytes) {
  CreditWindow window;
  window.set_limits({.events = 100, .bytes = 10});
  (void)window.take(9);
  EXPECT_TRUE(window.open()) << "while there is any room";
  (void)window.take(9);
  EXPECT_FALSE(window.open());
  window.consumed(1);
  EXPECT_TRUE(window.open());
  (void)window.take(0);
  EXPECT_TRUE(window.open());
  (void)window.take(1);
  EXPECT_FALSE(window.open());
  window.consumed(3);
  EXPECT_TRUE(window.open());
}

TEST(CreditWindow, WhatWasNotSentWeighsNothing) {
  CreditWindow window;
  window.set_limits({.events = 3, .bytes = 10});
  (void)window.take(4);
  (void)window.take(0);
  (void)window.take(8);
  EXPECT_FALSE(window.open());
  window.give_back(3);
  EXPECT_TRUE(window.open());
  EXPECT_EQ(window.take(6), 3U);
  EXPECT_FALSE(window.open());
  window.give_back(1);
  EXPECT_EQ(window.take(9), 1U);
  EXPECT_TRUE(window.open());
}

TEST(CreditWindow, WhatCannotBeIsNoNews) {
  CreditWindow window;
  window.set_limits({.events = 2});
  (void)window.take(0);
  (void)window.take(0);
  window.consumed(3);
  EXPECT_FALSE(window.open()) << "more than was sent";
  window.consumed(2);
  window.consumed(1);
  (void)window.take(0);
  EXPECT_TRUE(window.open()) << "an old word came late";
}

}  // namespace
}  // namespace fairlead::datapath
