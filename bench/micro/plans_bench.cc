// What is worked out before data moves: the runs of a strided tensor, the records of a batch of commands, where an
// engine's lanes and memory go; and a step of a program, emulated.
//
//   fairlead-bench-plans --benchmark_enable_random_interleaving=true --benchmark_repetitions=9 --benchmark_min_time=0.1
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/trace/emulator.h"
#include "datapath/command/codec.h"
#include "datapath/transfer/tensor_plan.h"
#include "topology/engine_plan.h"
#include "topology/hwloc_reader.h"

namespace fairlead::bench {
namespace {

// A block of a KV cache: so many tokens of 8 heads of 128 elements in bfloat16, out of a cache of 32 heads, into one of
// its own.
void PlanTensorOfTokens(benchmark::State& state) {
  constexpr std::int64_t kHeads = 8, kAllHeads = 32, kHead = 128;
  const std::int64_t tokens = state.range(0);
  TensorSpec from, to;
  from.dtype = to.dtype = DType::kBF16;
  from.rank = to.rank = 3;
  from.shape = to.shape = {tokens, kHeads, kHead};
  from.strides = {kAllHeads * kHead, kHead, 1};
  to.strides = {kHeads * kHead, kHead, 1};
  for (auto _ : state) {
    const auto runs = datapath::plan_tensor(from, to, 1 << 20);
    if (!runs) state.SkipWithError(runs.error().message().c_str());
    benchmark::DoNotOptimize(runs);
  }
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK(PlanTensorOfTokens)->Arg(16)->Arg(256)->Arg(4096);

namespace command = datapath::command;
constexpr std::size_t kParameters = 96;  // bytes of a launch, as PyTorch's kernels have them

void put_launch(std::vector<std::byte>& to, std::span<const std::byte> parameters) {
  const command::LaunchBody body{
      .function = 7, .grid = {1, 1, 1}, .block = {256, 1, 1}, .shared_bytes = 0, .parameter_bytes = kParameters};
  command::put_record(to, command::Opcode::kLaunch, 0, body, parameters);
}

void EncodeLaunches(benchmark::State& state) {
  const std::vector<std::byte> parameters(kParameters);
  std::vector<std::byte> batch;
  for (auto _ : state) {
    batch.clear();
    for (std::int64_t i = 0; i < state.range(0); ++i) put_launch(batch, parameters);
    benchmark::DoNotOptimize(batch.data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(EncodeLaunches)->Arg(1)->Arg(64);

void DecodeLaunches(benchmark::State& state) {
  std::vector<std::byte> batch;
  for (std::int64_t i = 0; i < state.range(0); ++i) put_launch(batch, std::vector<std::byte>(kParameters));
  for (auto _ : state) {
    command::Bytes bytes = batch;
    while (auto record = command::take_record(bytes)) {
      const auto body = command::take<command::LaunchBody>(record->body);
      if (!body) state.SkipWithError("the record does not parse");
      benchmark::DoNotOptimize(body);
    }
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(DecodeLaunches)->Arg(1)->Arg(64);

// Two sockets, 32 cores: four lanes, as the wish "auto" has it.
void PlanEngineOfTwoSockets(benchmark::State& state) {
  const auto machine = topology::read_synthetic("package:2 numa:1 core:16 pu:2");
  if (!machine) return state.SkipWithError(machine.error().message().c_str());
  const auto wish = parse_placement("node=1");
  for (auto _ : state) {
    const auto plan = topology::plan_engine(*machine, *wish, {.lanes = 4});
    if (!plan) state.SkipWithError(plan.error().message().c_str());
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK(PlanEngineOfTwoSockets);

// A token of GPT-2 small, whose device is 10 us away: what one point of `bench trace --emulate` costs.
void EmulateAStep(benchmark::State& state) {
  const auto trace = read_trace(FAIRLEAD_TRACES "/gpt2_small_decode.jsonl");
  if (!trace) return state.SkipWithError(trace.error().message().c_str());
  for (auto _ : state) benchmark::DoNotOptimize(emulate_remote(*trace, {.rtt_ns = 10'000, .bits_per_second = 100e9}));
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(trace->records.size()));
}
BENCHMARK(EmulateAStep);

}  // namespace
}  // namespace fairlead::bench
