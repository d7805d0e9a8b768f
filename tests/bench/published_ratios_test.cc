// What the closed form (predict.h) makes of ratios that others published, from what they say of their set-ups alone.
// Nothing is chosen so that it fits: where a fact is missing, what is computed is which value it would have to have.
// The page is docs/results/published_ratios.md.
#include <gtest/gtest.h>

#include "bench/training/models.h"
#include "bench/training/predict.h"
#include "bench/training/step.h"

namespace fairlead::bench {
namespace {

/// Computation, and bytes that nothing hides.
double seconds(double compute, const TransportModel& transport, double bytes) {
  return compute + bytes / rate_of(transport);
}
TransportModel rate(double bytes_per_second) { return {.bytes_per_core_second = bytes_per_second}; }

// github.com/ggml-org/llama.cpp/pull/20590: two nodes, 25 GbE, layers split in two, prompts of 2048 tokens: 651.48
// tokens a second over TCP, 678.42 over RDMA. Elements that cross for a token (the model's hidden size, 2048) as F32.
TEST(PublishedRatios, LlamaCppIsMetByAnyRateOfTcp) {
  constexpr double kBytes = 2048.0 * 2048 * 4, kTcp = 2048 / 651.48, kRdma = 2048 / 678.42;
  const TransportModel link = rate(25e9 / 8);
  const double compute = kRdma - kBytes / rate_of(link);
  EXPECT_GT(compute / kRdma, 0.998);                                                // nothing much crosses
  EXPECT_NEAR(seconds(compute, link, kBytes) / kRdma, 1.041, 0.15 * 1.041);         // TCP as fast as the link: 1.00
  EXPECT_NEAR(seconds(compute, rate(0.3e9), kBytes) / kRdma, 1.041, 0.15 * 1.041);  // or a tenth of it: 1.02
  const double needed = kBytes / (kTcp - compute);
  EXPECT_NEAR(needed, 0.129e9, 0.001e9);  // for 1.041 itself, if all were bytes and no waiting
}

// github.com/vllm-project/vllm/pull/10884: A10s, two RDMA NICs or TCP, mean time to the first token 1057 and 1414 ms.
TEST(PublishedRatios, VllmNeedsTheBytesOfItsPrompts) {
  constexpr double kRdma = 1.057, kTcp = 1.414;
  // Keys and values of a token of Qwen2.5-7B: 28 layers, 2 x 4 heads of 128, F16. How many tokens is not said in that
  // row.
  constexpr double kToken = 28 * 2 * 4 * 128 * 2;
  EXPECT_DOUBLE_EQ(kToken, 57344);
  const TransportModel mooncake_tcp = rate(0.26e9);  // as its issue #6 has it, of other hosts
  const auto ratio = [&](double tokens) { return seconds(kRdma, mooncake_tcp, tokens * kToken) / kRdma; };
  EXPECT_NEAR(ratio(1024), 1.21, 0.01);
  EXPECT_NEAR(ratio(2048), 1.43, 0.01);
  EXPECT_NEAR((kTcp - kRdma) * rate_of(mooncake_tcp) / kToken, 1619, 1);  // tokens, for 1.34 itself
}

// PVRDMA with 4 nodes of a T4 each at 100 Gb/s: "two times better efficiency". Neither model nor batch nor images a
// second of one node nor TCP's rate are said.
TEST(PublishedRatios, TwiceWithPvrdmaNeedsTheRateOfTcp) {
  const TransportModel rdma = rate(11.5e9);  // what 100 Gb/s leave
  const auto ratio = [&](const char* name, double compute, double tcp) {
    const Model model = *model_by_name(name);
    const StepOptions options{.compute_seconds = compute};
    return predict_step(model, options, rate(tcp), 4) / predict_step(model, options, rdma, 4);
  };
  // Were it ResNet-50, 200 ms a step, TCP's 2 GB/s of a core would be hidden by the computation.
  EXPECT_NEAR(ratio("resnet50", 0.2, 2e9), 1.1, 0.1);
  EXPECT_LT(ratio("resnet50", 0.2, 0.5e9), 2);
  EXPECT_GT(ratio("resnet50", 0.2, 0.3e9), 2);
  // A model with less computation for its gradients has the ratio at rates that TCP has.
  EXPECT_GT(ratio("vgg16", 0.2, 1.5e9), 2);
  const double intensity = intensity_for(2, rate(2e9), rdma, 4).value();
  EXPECT_NEAR(intensity, 2.67e9, 0.01e9);
  EXPECT_LT(static_cast<double>(model_by_name("resnet50")->parameters()) * 4 / 0.2, intensity);
}

// github.com/LMCache/LMCache/pull/3018: 80 objects of 16 MiB stored at 1.50 GB/s over TCP and 8.09 over RDMA, loaded
// at 3.18 and 6.40. There is no computation, so the ratio is that of the rates, which are what was measured.
TEST(PublishedRatios, LmcacheIsARatioOfRatesAndNothingElse) {
  constexpr double kBytes = 80.0 * (16 << 20);
  const auto ratio = [&](double tcp, double rdma) {
    return seconds(0, rate(tcp), kBytes) / seconds(0, rate(rdma), kBytes);
  };
  EXPECT_NEAR(ratio(1.50e9, 8.09e9), 5.4, 0.01);  // put in, and got out: no prediction
  EXPECT_NEAR(ratio(3.18e9, 6.40e9), 2.0, 0.02);
  EXPECT_GT(ratio(0.26e9, 8.09e9), 5.4 * 1.15);  // the same engine's TCP elsewhere predicts another one
}

}  // namespace
}  // namespace fairlead::bench
