#include "base/system/large_bytes.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace fairlead {
namespace {

using Bytes = std::vector<std::byte>;

#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

/// Takes all of that size that there is: a stock of the process has what other tests left.
void empty(std::size_t bytes) {
  std::vector<Bytes> all;
  for (int i = 0; i < 100; ++i) all.push_back(take_large(bytes));
}

TEST(LargeBytes, WhatWasUsedLastComesFirst) {
  constexpr std::size_t kBytes = 200'000;
  empty(kBytes);
  Bytes one = take_large(kBytes), other = take_large(kBytes);
  const std::byte *const first = one.data(), *const last = other.data();
  EXPECT_GE(one.capacity(), kBytes);
  EXPECT_TRUE(one.empty());
  one.assign(kBytes, std::byte{7});
  give_large(std::move(one));
  give_large(std::move(other));
  Bytes again = take_large(kBytes);
  EXPECT_TRUE(again.empty()) << "nobody sees what was there";
  if (kKeeps) {
    EXPECT_EQ(again.data(), last);
    EXPECT_EQ(take_large(kBytes).data(), first);
  }
}

TEST(LargeBytes, AreGivenForWhatFits) {
  empty(100'000);
  Bytes large;
  large.reserve(500'000);
  const std::byte* const data = large.data();
  give_large(std::move(large));
  EXPECT_NE(take_large(100'000).data(), data) << "it is wasted on a fifth";
  EXPECT_NE(take_large(500'001).data(), data);
  EXPECT_GE(take_large(500'001).capacity(), 500'001u);
  if (kKeeps) {
    EXPECT_EQ(take_large(400'000).data(), data);
  }
}

TEST(LargeBytes, TheStockIsBounded) {
  for (int i = 0; i < 200; ++i) {
    Bytes each;
    each.reserve(300'000);
    give_large(std::move(each));
  }
  std::size_t kept = 0;
  std::vector<Bytes> all;
  for (int i = 0; i < 200; ++i) {
    all.push_back(take_large(250'000));
    kept += all.back().capacity() == 300'000 ? 1 : 0;
  }
  EXPECT_LE(kept * 300'000, std::size_t{8} << 20);
  Bytes small(10), huge;
  huge.reserve(2 << 20);
  give_large(std::move(small));
  give_large(std::move(huge));
  EXPECT_LT(take_large(1'000'000).capacity(), std::size_t{2} << 20) << "too large to be kept";
  EXPECT_TRUE(take_large(0).empty());
}

TEST(LargeBytes, AreAnyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2000; ++i) {
        Bytes bytes = take_large(40'000 + static_cast<std::size_t>(i % 7) * 9'000);
        bytes.resize(40'000, static_cast<std::byte>(t));
        ASSERT_EQ(bytes.front(), static_cast<std::byte>(t));
        ASSERT_EQ(bytes.back(), static_cast<std::byte>(t)) << "another thread has the same";
        give_large(std::move(bytes));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fairlead
