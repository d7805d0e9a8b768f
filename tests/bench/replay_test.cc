#include "bench/trace/replay.h"

#include <gmock/gmock.h>

#include <cstring>

#include "bench/trace/busy_executor.h"
#include "bench/trace/trace_report.h"
#include "fairlead/peer.h"

namespace fairlead::bench {
namespace {

using testing::HasSubstr;

Trace parse(std::string_view records) {
  const std::string text = R"({"fairlead_trace":1,"name":"n","made":"by hand"})" + ("\n" + std::string(records));
  Result<Trace> trace = parse_trace(text, "a");
  EXPECT_TRUE(trace) << trace.error().to_string();
  return *std::move(trace);
}

// Notes what it is asked for.
class Notes final : public TraceDevice {
 public:
  Status call(const TraceRecord& record) override {
    said += std::string(name_of(record.op)) + std::to_string(record.stream) + " ";
    return fails == name_of(record.op) ? Status(Code::kAborted, "as told") : Status();
  }
  Status wait(std::uint8_t stream) override {
    said += "wait" + std::to_string(stream) + " ";
    return {};
  }
  [[nodiscard]] Status check() const override { return intact ? Status() : Status(Code::kDataLoss, "a byte is wrong"); }
  void clear() override { said += "clear "; }
  std::string said, fails;
  bool intact = true;
};

constexpr std::string_view kCalls = R"({"op":"copy_in","stream":1,"bytes_out":9}
{"op":"mark","stream":1}
{"op":"fence","stream":0,"on":1}
{"op":"launch","blocking":true}
{"op":"copy_out","stream":1,"bytes_back":9}
{"op":"synchronize","stream":0}
)";

TEST(Replay, CallsInOrderAndWaitsWhereTheProgramDoes) {
  Notes notes;
  ASSERT_TRUE(replay(parse(kCalls), notes));
  EXPECT_EQ(notes.said, "clear copy_in1 mark1 fence0 launch0 wait0 copy_out1 synchronize0 wait0 wait0 wait1 ");
}

TEST(Replay, TheFirstFailureEndsIt) {
  Notes notes;
  notes.fails = "fence";
  const auto times = replay(parse(kCalls), notes);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message(), "as told");
  EXPECT_EQ(notes.said, "clear copy_in1 mark1 fence0 ");
}

TEST(Replay, WhatCameBackWrongFailsIt) {
  Notes notes;
  notes.intact = false;
  const auto times = replay(parse(kCalls), notes);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message(), "a byte is wrong");
}

TEST(Replay, TheLocalDeviceDoesIt) {
  const Trace trace = parse(kCalls);
  auto device = make_local_device(trace);
  ASSERT_TRUE(device) << device.error().to_string();
  for (int i = 0; i < 3; ++i) {
    const auto times = replay(trace, **device);
    ASSERT_TRUE(times) << times.error().to_string();
    std::uint64_t parts = times->end_ns;
    for (const std::uint64_t ns : times->op_ns) parts += ns;
    EXPECT_EQ(parts, times->total_ns);  // there is no gap
  }
}

TEST(Replay, GapsAndLaunchesTakeAtLeastTheirTime) {
  const Trace trace = parse(R"({"op":"launch","gap_ns":1000000,"device_ns":2000000,"blocking":true})");
  auto device = make_local_device(trace);
  ASSERT_TRUE(device);
  const auto times = replay(trace, **device);
  ASSERT_TRUE(times);
  EXPECT_GE(times->total_ns, 3'000'000U);
  EXPECT_GE(times->op_ns[0], 2'000'000U);
}

TEST(Replay, MoreCallsThanTheQueueHolds) {
  std::string records;
  for (int i = 0; i < 10'000; ++i) records += "{\"op\":\"launch\",\"bytes_out\":4096}\n";
  const Trace trace = parse(records);
  auto device = make_local_device(trace);
  ASSERT_TRUE(device);
  EXPECT_TRUE(replay(trace, **device));
}

TEST(TraceMemory, SeesWhatIsMissing) {
  TraceMemory memory(parse(R"({"op":"copy_out","stream":2,"bytes_back":100})"));
  EXPECT_EQ(memory.device_bytes(2), 100U);
  EXPECT_EQ(memory.device_bytes(1), 0U);
  memory.clear();
  EXPECT_FALSE(memory.check().ok());
  const auto pattern = memory.pattern(100);
  const auto result = memory.result(2, 100);
  std::memcpy(result.data(), pattern.data(), 100);
  EXPECT_TRUE(memory.check().ok());
  result[99] ^= std::byte{1};
  EXPECT_THAT(memory.check().message(), HasSubstr("byte 99 of what stream 2 copied out"));
}

TEST(BusyExecutor, IsAHostExecutorWithOneFunctionMore) {
  auto made = busy_executors()(Peer{});
  ASSERT_TRUE(made);
  command::Executor& executor = **made;
  EXPECT_EQ(executor.load({0}, "busy").result, command::kInvalidValue);
  EXPECT_TRUE(executor.load({1}, "busy").ok());
  EXPECT_TRUE(executor.load({2}, "vector_add").ok());
  EXPECT_TRUE(executor.is_short({1}));
  EXPECT_FALSE(executor.is_short({2}));
  std::vector<std::byte> bytes;
  EXPECT_EQ(busy_parameters(bytes, 10, 0).size(), 8U);
  EXPECT_TRUE(executor.launch({.function = {1}}, busy_parameters(bytes, 10, 96)).ok());
  EXPECT_EQ(executor.launch({.function = {1}}, busy_parameters(bytes, 10, 96).first(7)).result, command::kInvalidValue);
  EXPECT_EQ(executor.launch({.function = {1}}, busy_parameters(bytes, kMaxTraceNs + 1, 8)).result,
            command::kInvalidValue);
  EXPECT_EQ(executor.launch({.function = {3}}, busy_parameters(bytes, 10, 8)).result, command::kInvalidHandle);
  EXPECT_TRUE(executor.load({1}, "nothing").ok());  // the handle is another function's now
  EXPECT_EQ(executor.launch({.function = {1}}, busy_parameters(bytes, 10, 8)).result, command::kInvalidValue);
}

TEST(TraceReport, IsOfMediansAndNamesEachKindOfCall) {
  TraceSample sample;
  for (const std::uint64_t ns : {300U, 100U, 200U}) {
    ReplayTimes times;
    times.total_ns = ns;
    times.op_ns[0] = ns / 2;
    sample.local.push_back(times);
    times.total_ns = ns + 20;
    sample.remote.push_back(times);
  }
  EXPECT_NEAR(overhead_of(sample), 0.1, 1e-9);
  EXPECT_EQ(overhead_of({}), 0.0);
  const Json json(to_json(parse(kCalls), sample));
  EXPECT_EQ(json.find("local_ns")->find("p50")->uint(), 200U);
  EXPECT_EQ(json.find("remote_ns")->find("max")->uint(), 320U);
  EXPECT_EQ(json.find("by_op")->object()->size(), kTraceOps);
  EXPECT_EQ(json.find("by_op")->find("launch")->find("remote_ns")->uint(), 100U);
  EXPECT_EQ(json.find("by_op")->find("copy_out")->find("bytes_back")->uint(), 9U);
}

}  // namespace
}  // namespace fairlead::bench
