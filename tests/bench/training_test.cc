// Models against their published sizes; the plan of a step; what is predicted, and what is said to be impossible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "bench/training/models.h"
#include "bench/training/predict.h"
#include "bench/training/rank.h"
#include "bench/training/step.h"
#include "tests/bench/ranks.h"

namespace fairlead::bench {
namespace {

TEST(TrainingModels, HaveThePublishedSizes) {
  EXPECT_EQ(model_by_name("resnet50")->parameters(), 25'557'032U);
  EXPECT_EQ(model_by_name("vgg16")->parameters(), 138'357'544U);
  EXPECT_EQ(model_by_name("bert-base")->parameters(), 109'482'240U);
  EXPECT_NEAR(model_by_name("resnet50")->forward_macs(), 4.09e9, 0.02e9);
  EXPECT_NEAR(model_by_name("vgg16")->forward_macs(), 15.47e9, 0.02e9);
  const Result<Model> none = model_by_name("resnet");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(), testing::HasSubstr("resnet50, vgg16, bert-base"));
}

TEST(TrainingStep, GradientsComeFromTheLastLayerToTheFirst) {
  const Model model = *model_by_name("vgg16");
  const StepOptions options{.compute_seconds = 3};
  const std::vector<Gradient> gradients = gradients_of(model, options);
  ASSERT_EQ(gradients.size(), 32U);
  EXPECT_EQ(gradients.front().bytes, 4096U * 1000 * 4);
  EXPECT_GT(gradients.front().ready, 1.0);
  EXPECT_DOUBLE_EQ(gradients.back().ready, 3.0);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    bytes += gradients[i].bytes;
    if (i > 0) {
      EXPECT_GE(gradients[i].ready, gradients[i - 1].ready);
    }
  }
  EXPECT_EQ(bytes, model.parameters() * 4);
  for (const Gradient& gradient : gradients_of(model, {.compute_seconds = 3, .overlap = false})) {
    EXPECT_DOUBLE_EQ(gradient.ready, 3.0);
  }
}

TEST(TrainingStep, WhatIsKnownIsFusedUpToTheLimit) {
  const std::vector<Gradient> gradients{{10, 1}, {10, 1}, {10, 2}, {100, 2}, {10, 3}};
  const Bucket waits = next_bucket(gradients, 0, 0, 50);
  EXPECT_DOUBLE_EQ(waits.start, 1);
  EXPECT_EQ(waits.end, 2U);
  EXPECT_EQ(waits.bytes, 20U);
  EXPECT_EQ(next_bucket(gradients, 0, 2.5, 50).end, 3U);  // the fourth is too large to go along,
  EXPECT_EQ(next_bucket(gradients, 3, 2.5, 50).end, 4U);  // and goes alone
  EXPECT_EQ(next_bucket(gradients, 0, 5, 1000).end, 5U);
}

TEST(TrainingStep, TakesWhatIsLongerOfComputingAndSumming) {
  const std::vector<Gradient> gradients{{10, 1}, {10, 2}, {10, 3}};
  const StepOptions options{.compute_seconds = 3, .fusion_bytes = 10};
  EXPECT_DOUBLE_EQ(step_seconds(gradients, options, [](std::size_t) { return 0.0; }), 3);
  EXPECT_DOUBLE_EQ(step_seconds(gradients, options, [](std::size_t) { return 0.5; }), 3.5);
  EXPECT_DOUBLE_EQ(step_seconds(gradients, options, [](std::size_t) { return 2.0; }), 7);
}

TEST(TrainingStep, RanksSumTheSameWhateverTheirClocksSay) {
  TrainingPlan plan;
  for (int i = 0; i < 40; ++i)
    plan.model.layers.push_back({"", {std::size_t{1000} + 37 * static_cast<std::size_t>(i)}, 1});
  plan.step = {.compute_seconds = 0.02, .fusion_bytes = 16384};
  plan.steps = 4;
  expect_ok(run_ranks(3, [&](Group& group) -> Status {
    TrainingTimes times;
    Status ended = train(group, plan, &times);
    if (!ended.ok()) return ended;
    EXPECT_EQ(times.step_seconds.size(), 4U);
    EXPECT_GE(times.sums, 4U * 17);  // 272,840 bytes, 16 KiB at a time
    return ended;
  }));
}

// Whether each rank has a number of its own, or all have the same.
TEST(TrainingStep, WhatIsNotTheSumIsFoundOutHoweverManySum) {
  TrainingPlan plan;
  plan.model.layers.push_back({"", {1000}, 1});
  for (const std::size_t ranks : {std::size_t{2}, std::size_t{10}, std::size_t{11}}) {
    expect_ok(run_ranks(ranks, [&](Group& group) -> Status {
      GradientMemory memory;
      Result<Trainer> trainer = Trainer::prepare(&group, plan, "gradients", &memory);
      if (!trainer) return trainer.error();
      if (const Status done = trainer->step(); !done.ok()) return done;
      const Status right = trainer->check();
      EXPECT_TRUE(right.ok()) << right.to_string();
      memory.summed[2000] ^= std::byte{1};
      EXPECT_EQ(trainer->check().code(), Code::kDataLoss) << ranks;
      return group.barrier();
    }));
  }
}

// Nobody polls the engine of a rank that computes but the rank itself, and the others wait for as long as that takes.
TEST(TrainingStep, WhoComputesForLongIsNotTakenForDead) {
  TrainingPlan plan;
  plan.model.layers.push_back({"", {1000}, 1});
  plan.step.compute_seconds = 6;
  plan.warm_up = 0;
  plan.steps = 1;
  const auto job = [&](Group& group) -> Status {
    TrainingTimes times;
    Status ended = train(group, plan, &times);
    EXPECT_EQ(group.patience(), std::chrono::seconds(66));
    return ended;
  };
  expect_ok(run_ranks(2, job, Progress::kApplication, std::chrono::seconds(2)));
}

TEST(TrainingStep, TheFirstRankSaysWhenItIsOver) {
  TrainingPlan plan;
  plan.model.layers.push_back({"", {1000}, 1});
  plan.step.compute_seconds = 0;
  plan.steps = 1'000'000;
  for (const int stopped : {0, 1}) {  // in a while, and before the first step
    std::atomic<int> stop = stopped;
    const std::atomic<int> go_on = 0, not_heeded = 1;
    expect_ok(run_ranks(3, [&](Group& group) -> Status {
      const bool first = group.rank() == 0;
      std::jthread interrupts;
      if (first)
        interrupts = std::jthread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          stop = 1;
        });
      TrainingTimes times;
      Status ended = train(group, plan, &times, first ? &stop : group.rank() == 1 ? &not_heeded : &go_on);
      if (!ended.ok()) return ended;
      EXPECT_TRUE(times.interrupted);
      EXPECT_LT(times.step_seconds.size(), plan.steps);
      if (stopped != 0) {
        EXPECT_TRUE(times.step_seconds.empty());
      }
      return ended;
    }));
  }
}

TEST(TrainingStep, PlansThatDifferAreFoundOut) {
  const std::vector<Status> ended = run_ranks(2, [&](Group& group) -> Status {
    TrainingPlan plan;
    plan.model.layers.push_back({"", {1000 + group.rank()}, 1});
    TrainingTimes times;
    Status ended = train(group, plan, &times);
    EXPECT_TRUE(times.interrupted);
    EXPECT_TRUE(times.step_seconds.empty());
    return ended;
  });
  EXPECT_FALSE(ended[0].ok());
  EXPECT_FALSE(ended[1].ok());
}

TEST(TrainingPrediction, TheNarrowestOfCoresLinkAndWindowHolds) {
  TransportModel transport{.bytes_per_core_second = 4e9, .cores = 2};
  EXPECT_DOUBLE_EQ(rate_of(transport), 8e9);
  transport.link_bytes_per_second = 5e9;
  EXPECT_DOUBLE_EQ(rate_of(transport), 5e9);
  transport.window_bytes = 1e6;
  transport.round_trip = 1e-3;
  EXPECT_DOUBLE_EQ(rate_of(transport), 1e9);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(transport, 1, 1e9), 0);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(transport, 4, 1e9), 1.5);
  transport.latency = 1e-3;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(transport, 4, 1e9), 1.506);
}

TEST(TrainingPrediction, TwiceAsFastTakesMoreBytesThanComputingHides) {
  const TransportModel slow{.bytes_per_core_second = 1e9}, fast{.bytes_per_core_second = 3e9};
  EXPECT_FALSE(intensity_for(2, slow, {.bytes_per_core_second = 1.9e9}, 4));
  EXPECT_FALSE(intensity_for(2, slow, fast, 1));
  const double least = intensity_for(2, slow, fast, 4).value();
  EXPECT_NEAR(least, 2e9 / 1.5, 1);
  // A network whose gradients come evenly, in many small tensors, has that ratio there, and less below.
  Model even{"even", "", "", {}};
  for (int i = 0; i < 1000; ++i) even.layers.push_back({"", {static_cast<std::size_t>(least / 4 / 1000)}, 1});
  const StepOptions options{.compute_seconds = 1, .forward_share = 0, .fusion_bytes = 1};
  const auto ratio = [&](double compute) {
    StepOptions of = options;
    of.compute_seconds = compute;
    return predict_step(even, of, slow, 4) / predict_step(even, of, fast, 4);
  };
  EXPECT_NEAR(ratio(1), 2, 0.02);
  EXPECT_LT(ratio(1.2), 1.8);
  EXPECT_GT(ratio(0.8), 2.2);
}

}  // namespace
}  // namespace fairlead::bench
