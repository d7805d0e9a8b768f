// The shrinker, on predicates whose smallest failing plan is known.
#include "shrink.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fairlead::simulation {
namespace {

/// A seed's plan with enough in it to be made smaller.
Plan large_plan() {
  for (std::uint64_t seed = 1;; ++seed) {
    Plan plan = make_plan(seed, true);
    if (plan.posts.size() == 2 && plan.transports.size() >= 3 && plan.troubles.size() >= 4) return plan;
  }
}

bool reads_much(const std::vector<Post>& posts) {
  return std::ranges::any_of(posts,
                             [](const Post& post) { return post.kind == Post::Kind::kRead && post.bytes >= 100; });
}

TEST(Shrink, LeavesOnlyWhatThePredicateAsksFor) {
  const auto fails = [](const Plan& plan) {
    const bool cut = std::ranges::any_of(plan.troubles, [](const Trouble& t) { return t.kind == Trouble::Kind::kCut; });
    return cut && std::ranges::any_of(plan.posts, [](const auto& client) { return reads_much(client[1]); });
  };
  Plan plan = large_plan();
  plan.troubles.push_back({.kind = Trouble::Kind::kCut, .delay = microseconds(7), .client = 1});
  plan.posts[1][1].push_back({.kind = Post::Kind::kRead, .bytes = 5000, .pieces = 5, .notifies = true});
  ASSERT_TRUE(fails(plan));
  ASSERT_GT(size_of(plan), 60u);
  const Shrunk shrunk = shrink(plan, fails);
  EXPECT_TRUE(fails(shrunk.plan));
  EXPECT_EQ(size_of(shrunk.plan), 2u);
  EXPECT_EQ(shrunk.plan.posts.size(), 1u);
  EXPECT_EQ(shrunk.plan.transports.size(), 1u);
  ASSERT_EQ(shrunk.plan.posts[0][1].size(), 1u);
  const Post& post = shrunk.plan.posts[0][1][0];
  EXPECT_GE(post.bytes, 100u);
  EXPECT_LT(post.bytes, 200u) << "it is halved as long as that fails";
  EXPECT_EQ(post.pieces, 1u);
  EXPECT_FALSE(post.notifies);
  EXPECT_EQ(shrunk.plan.troubles[0].delay.count(), 0);
}

TEST(Shrink, OfWhatAlwaysFailsNothingIsLeft) {
  const Shrunk shrunk = shrink(large_plan(), [](const Plan&) { return true; });
  EXPECT_EQ(size_of(shrunk.plan), 0u);
  EXPECT_EQ(shrunk.plan.transports.size(), 1u);
  EXPECT_FALSE(shrunk.plan.transports[0].reorders);
  EXPECT_EQ(shrunk.plan.transports[0].loss, 0);
}

TEST(Shrink, TriesOtherTimingsBeforeItGivesUp) {
  Plan plan = large_plan();
  plan.timing = 1000;
  // Whatever is changed, the timing that failed does not fail any more.
  const auto fails = [&](const Plan& smaller) {
    return smaller.timing == 1001 + (size_of(plan) - size_of(smaller)) % 2;
  };
  const Shrunk shrunk = shrink(plan, fails);
  EXPECT_TRUE(fails(shrunk.plan));
  EXPECT_LT(size_of(shrunk.plan), size_of(plan) / 2);
}

TEST(Shrink, WhatCannotBeSmallerStaysAsItIs) {
  const Plan plan = large_plan();
  const Shrunk shrunk = shrink(plan, [](const Plan&) { return false; });
  EXPECT_EQ(to_test(shrunk.plan, "Same"), to_test(plan, "Same"));
}

TEST(Shrink, SpendsNoMoreRunsThanItMay) {
  std::size_t runs = 0;
  const auto fails = [&](const Plan&) { return ++runs == 50; };
  EXPECT_EQ(shrink(large_plan(), fails, 50).runs, 50u);
  EXPECT_EQ(runs, 50u);
}

TEST(Shrink, APlanIsWrittenDownAsATest) {
  Plan plan;
  plan.timing = 17;
  plan.transports.emplace_back().can.max_message = 99;
  plan.posts.resize(1);
  plan.posts[0][1] = {{.kind = Post::Kind::kRead, .bytes = 5, .deadline = microseconds(3)}};
  plan.troubles = {{.kind = Trouble::Kind::kCut, .notice = {microseconds(4), kNever}}};
  EXPECT_EQ(to_test(plan, "Seed5"), R"(TEST_F(Scenario, Seed5) {
  Plan plan;
  plan.timing = 17u;
  {
    Habits& h = plan.transports.emplace_back();
    h.name = "verbs:fake0";
    h.latency = microseconds(20);
    h.can.max_message = 99;
    h.can.max_segments = 1;
    h.can.max_outstanding = 0;
  }
  plan.posts.resize(1);
  plan.posts[0][1] = {
      {.kind = Post::Kind::kRead, .bytes = 5, .deadline = microseconds(3)},
  };
  plan.troubles = {
      {.kind = Trouble::Kind::kCut, .notice = {microseconds(4), kNever}},
  };
  EXPECT_EQ(run_plan(plan).wrong, "");
}
)");
}

}  // namespace
}  // namespace fairlead::simulation
