// Training over two transports: what ranks do together, and what is made of what they measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "bench/gain/training.h"
#include "bench/gain/training_parameters.h"
#include "tests/bench/ranks.h"

namespace fairlead::bench {
namespace {

using testing::HasSubstr;

TrainingGainPlan small_plan() {
  TrainingGainPlan plan;
  for (int i = 0; i < 8; ++i) plan.training.model.layers.push_back({"", {std::size_t{3000}}, 1});
  plan.training.model.name = "small";
  plan.training.step = {.compute_seconds = 0.004, .fusion_bytes = 32768};
  plan.training.steps = 2;
  plan.candidate = "tcp";
  plan.quads = 2;
  plan.sum_bytes = 96'000;
  return plan;
}

std::vector<Status> run_ranks_of_two(std::size_t ranks, const std::function<Status(Group&)>& job) {
  return run_ranks(ranks, job, Progress::kAuto);
}

TEST(TrainingGain, EveryRankTrainsOverBoth) {
  for (const char* candidate : {"tcp", "shm"}) {
    TrainingGainPlan plan = small_plan();
    plan.candidate = candidate;
    expect_ok(run_ranks_of_two(3, [&](Group& group) -> Status {
      std::size_t told = 0;
      const Result<TrainingRun> run = compare_training(group, plan, [&](const TrainingQuad&) { ++told; });
      if (!run) return run.error();
      const std::size_t quads = group.rank() == 0 ? 2 : 0;
      EXPECT_EQ(told, quads);
      EXPECT_EQ(run->quads.size(), quads);
      EXPECT_EQ(run->control.size(), quads);
      if (group.rank() != 0) return {};
      EXPECT_TRUE(run->verified);
      EXPECT_EQ(run->baseline.facts.transport, "tcp");
      EXPECT_EQ(run->candidate.facts.transport, candidate);
      EXPECT_EQ(all_equal(run->terms), run->candidate.facts.transport == "tcp");
      for (const TrainingQuad& quad : run->quads) {
        for (const TrainingBlock& block : quad.baseline) EXPECT_GE(block.step, 0.004);
        for (const TrainingBlock& block : quad.candidate) EXPECT_GE(block.step, 0.004);
      }
      EXPECT_GT(run->candidate.model.link_bytes_per_second, 0);
      return {};
    }));
  }
}

TEST(TrainingGain, ARankWithoutTheCandidateEndsItForAll) {
  const std::vector<Status> ended = run_ranks_of_two(3, [](Group& group) -> Status {
    TrainingGainPlan plan = small_plan();
    plan.candidate = group.rank() == 1 ? "quic" : "shm";
    const Result<TrainingRun> run = compare_training(group, plan, [](const TrainingQuad&) {});
    return run ? Status() : run.error();
  });
  EXPECT_THAT(ended[0].message(), HasSubstr("rank 1: "));
  EXPECT_THAT(ended[1].message(), HasSubstr("quic"));
  EXPECT_FALSE(ended[2].ok());
}

TEST(TrainingGain, ARankAloneIsRefused) {
  const std::vector<Status> ended = run_ranks_of_two(1, [](Group& group) -> Status {
    const Result<TrainingRun> run = compare_training(group, small_plan(), [](const TrainingQuad&) {});
    return run ? Status() : run.error();
  });
  EXPECT_THAT(ended[0].message(), HasSubstr("take at least 2"));
}

TEST(TrainingGain, ARankThatDrivesItsEnginesItselfIsRefused) {
  const std::vector<Status> ended = run_ranks(2, [](Group& group) -> Status {
    const Result<TrainingRun> run = compare_training(group, small_plan(), [](const TrainingQuad&) {});
    return run ? Status() : run.error();
  });
  for (const Status& status : ended) EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
}

TEST(TrainingGain, WhoStopsItGetsWholeQuads) {
  std::atomic<int> stop{0};
  TrainingGainPlan plan = small_plan();
  plan.quads = 500;
  plan.stop = &stop;
  expect_ok(run_ranks_of_two(2, [&](Group& group) -> Status {
    const Result<TrainingRun> run = compare_training(group, plan, [&](const TrainingQuad&) { stop = 2; });
    if (!run) return run.error();
    EXPECT_EQ(run->quads.size(), group.rank() == 0 ? 1U : 0U);
    if (group.rank() != 0) return {};
    EXPECT_FALSE(run->verified);
    const TrainingReport report = report_of(*run, plan, {});
    EXPECT_TRUE(report.gain.interrupted);
    EXPECT_EQ(report.gain.analysis.primary()->verdict, Verdict::kInconclusive);
    return {};
  }));
}

EndFacts at(const std::string& host, unsigned cores, double quota = 0) {
  EndFacts end;
  end.host.boot = host;
  end.host.usable = cores;
  end.host.quota = quota;
  return end;
}

TEST(TrainingGainParameters, AHostsTimeCountsOnceForAllItsRanks) {
  TrainingGainPlan plan = small_plan();
  plan.sum_bytes = 1'000'000;
  const TrainingBlock block{.step = 0.02, .sum = 0.011, .ring_step = 0.001};
  const std::vector<TrainingQuad> quads{{false, {block, block}, {block, block}}};
  // Three ranks, two of them at one host; each sends 4/3 of the bytes in a sum, of which there were two.
  const std::vector<EndFacts> ends{at("a", 4, 3), at("a", 4, 3), at("b", 8)};
  const TrainingSide side =
      side_of(quads, &TrainingQuad::baseline, {2, {1'000'000'000, 1'000'000'000, 3'000'000'000}}, ends, plan, {});
  EXPECT_DOUBLE_EQ(side.step, 0.02);
  EXPECT_DOUBLE_EQ(side.model.latency, 0.001);
  EXPECT_DOUBLE_EQ(side.model.cores, 1.5);                                // a budget of 3 for two
  EXPECT_NEAR(side.model.link_bytes_per_second, 1e6 * 4 / 3 / 0.007, 1);  // four steps of the ring are no moving
  // 8 MB for 4 core-seconds would be 2 MB; but more went through the cores of a rank.
  EXPECT_DOUBLE_EQ(side.model.bytes_per_core_second, side.model.link_bytes_per_second / 1.5);
  const TrainingSide idle =
      side_of(quads, &TrainingQuad::baseline, {2, {1'000'000, 1'000'000, 3'000'000}}, ends, plan, {});
  EXPECT_NEAR(idle.model.bytes_per_core_second, 8e6 / 0.004, 1);
  EXPECT_NEAR(rate_of(idle.model), idle.model.link_bytes_per_second, 1e-6);
}

TEST(TrainingGainParameters, OfNoBlocksThereAreNone) {
  const TrainingSide side =
      side_of({}, &TrainingQuad::baseline, {0, {0, 0}}, {at("a", 2), at("a", 2)}, small_plan(), {});
  EXPECT_EQ(side.step, 0);
  EXPECT_EQ(side.model.link_bytes_per_second, 0);
}

/// Steps of 100 and of 50 ms, but for some noise; a rate of 1 and of 4 GB/s.
TrainingRun twice_as_fast() {
  TrainingRun run;
  run.ranks = 4;
  for (int i = 0; i < 24; ++i) {
    const double noise = 1 + 0.001 * (i % 5);
    const TrainingBlock slow{.step = 0.1 * noise}, fast{.step = 0.05}, same{.step = 0.1};
    run.quads.push_back({i % 2 == 0, {slow, slow}, {fast, fast}});
    run.control.push_back({i % 2 == 0, {same, same}, {same, same}});
  }
  run.baseline.facts.transport = "tcp";
  run.candidate.facts.transport = "verbs:mlx5_0";
  run.baseline.model = {.bytes_per_core_second = 1e9, .cores = 1, .latency = 1e-6};
  run.candidate.model = {.bytes_per_core_second = 4e9, .cores = 1, .latency = 1e-6};
  run.terms.push_back(same_term("link", "eth0"));
  run.verified = true;
  return run;
}

TEST(TrainingGainReport, SaysHowManyTimesAndFromWhereOn) {
  TrainingGainPlan plan = small_plan();
  plan.links = {0.5e9, 100e9};
  const TrainingReport report = report_of(twice_as_fast(), plan, {});
  const Comparison& primary = *report.gain.analysis.primary();
  EXPECT_NEAR(primary.ratio.ratio, 2, 0.01);
  EXPECT_EQ(primary.verdict, Verdict::kCandidate);
  EXPECT_NEAR(primary.candidate, 64 * 4 / 0.05, 1);
  ASSERT_EQ(report.thresholds.size(), 3U);
  EXPECT_NEAR(report.thresholds[0].intensity.value(), 2e9 / 1.5, 1);
  EXPECT_FALSE(report.thresholds[1].intensity);  // the link holds both to the same rate
  EXPECT_NEAR(report.thresholds[2].intensity.value(), 2e9 / 1.5, 1);
  ASSERT_EQ(report.predictions.size(), 12U);  // 3 links; 1, 2, 4 and 8 nodes
  for (const Prediction& each : report.predictions) {
    EXPECT_LE(each.candidate_step, each.baseline_step);
    if (each.nodes == 1) {
      EXPECT_DOUBLE_EQ(each.baseline_step, plan.training.step.compute_seconds);
    }
  }
  EXPECT_THAT(lines_of(report), testing::Contains(HasSubstr("claimed elsewhere: 2 (")));
}

TEST(TrainingGainReport, OfUnequalTermsNothingIsClaimed) {
  TrainingRun run = twice_as_fast();
  run.terms.front().equal = false;
  const TrainingReport report = report_of(std::move(run), small_plan(), {});
  EXPECT_EQ(report.gain.analysis.primary()->verdict, Verdict::kUnequalTerms);
  EXPECT_THAT(lines_of(report), testing::Contains(HasSubstr("unequal_terms: ")));
}

TEST(TrainingGainReport, AControlThatDiffersTakesTheClaim) {
  TrainingRun run = twice_as_fast();
  for (TrainingQuad& quad : run.control) quad.candidate[0].step = quad.candidate[1].step = 0.04;
  const TrainingReport report = report_of(std::move(run), small_plan(), {});
  EXPECT_EQ(report.gain.analysis.primary()->verdict, Verdict::kInconclusive);
  EXPECT_THAT(report.gain.analysis.reason, HasSubstr("control"));
}

TEST(TrainingGainReport, InterruptedBeforeItsFirstQuadItPredictsNothing) {
  TrainingRun run = twice_as_fast();
  run.quads.clear();
  run.control.clear();
  const TrainingReport report = report_of(std::move(run), small_plan(), {});
  EXPECT_TRUE(report.predictions.empty());
  EXPECT_EQ(report.gain.analysis.primary(), nullptr);
  EXPECT_FALSE(lines_of(report).empty());
  const std::string page = page_of(report);
  EXPECT_THAT(page, HasSubstr("<strong>inconclusive</strong>"));
  EXPECT_THAT(page, HasSubstr("Claimed elsewhere"));
  EXPECT_THAT(page, testing::Not(HasSubstr("data-link")));
  EXPECT_EQ(draw_efficiency(report, 0), "");
}

TEST(TrainingGainReport, ThePageDrawsEachLinkAndTakesForeignNamesAsText) {
  TrainingGainPlan plan = small_plan();
  plan.links = {12.5e9};
  TrainingRun run = twice_as_fast();
  run.baseline.step = 0.1, run.candidate.step = 0.05;
  run.candidate.facts.transport = "verbs:<script>";
  const std::string page = page_of(report_of(std::move(run), plan, {}));
  EXPECT_THAT(page, testing::Not(HasSubstr("<script>")));
  for (const char* said :
       {"Efficiency by nodes over this link", "Efficiency by nodes over 100 Gb/s", "data-link=\"100\" data-nodes=\"8\"",
        "tcp, measured: 0.040 at 4", "verbs:&lt;script&gt;, measured: 0.080 at 4"}) {
    EXPECT_THAT(page, HasSubstr(said));
  }
}

TEST(TrainingGainLink, IsNarrowerThanItsRateAndFurtherAway) {
  SideFacts tcp;
  tcp.transport = "tcp";
  EXPECT_DOUBLE_EQ(wire_share(tcp), 1);  // not known
  tcp.payload = 1448;
  EXPECT_NEAR(wire_share(tcp), 1448.0 / 1538, 1e-12);
  const TransportModel model{.bytes_per_core_second = 9e9, .latency = 1e-4, .window_bytes = 6e5};
  EXPECT_DOUBLE_EQ(rate_of(model), 9e9);  // as measured, whatever the window
  const TransportModel moved = on_link(model, 2e9, 0.5, 1e-3);
  EXPECT_DOUBLE_EQ(moved.link_bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(moved.latency, 6e-4);
  EXPECT_DOUBLE_EQ(rate_of(moved), 5e8);  // a window in a round trip
}

TEST(TrainingGainLink, HasTheWindowOfItsSide) {
  SideFacts side;
  side.transport = "verbs:mlx5_0";
  EXPECT_EQ(window_of(side), 0);
  side.target_buffer = 6'291'456;  // of sockets, so it has them
  side.transport = "tcp";
  EXPECT_EQ(window_of(side), 6'291'456);
  side.transport = "verbs:soft0";
  EXPECT_EQ(window_of(side), 196'608);
}

TEST(TrainingModels, AScaledOneHasAsManyBytesForEachSecond) {
  const Model whole = *model_by_name("vgg16"), tenth = scaled(whole, 0.1);
  EXPECT_NEAR(static_cast<double>(tenth.parameters()), static_cast<double>(whole.parameters()) * 0.1, 32);
  EXPECT_EQ(scaled(whole, 1e-9).parameters(), 32U);  // one in each tensor
  EXPECT_DOUBLE_EQ(tenth.forward_macs(), whole.forward_macs());
}

}  // namespace
}  // namespace fairlead::bench
