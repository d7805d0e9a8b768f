#include "bench/trace/emulator.h"

#include <gmock/gmock.h>

#include <string>

#include "bench/trace/emulation.h"
#include "datapath/command/wire.h"
#include "fairlead/command.h"
#include "fairlead/command_service.h"

namespace fairlead::bench {
namespace {

constexpr double kRtt = 10'000, kRate = 10e9, kNsPerByte = 8e9 / kRate;
// Of the wire, bytes: a buffer's header, a launch with 96 bytes of parameters, a copy's record, a reply without more.
constexpr double kHeader = 16, kLaunch = 8 + 40 + 96, kCopy = 8 + 24, kReply = 16 + 24;
constexpr EmulatedDevice kDevice{200e9};
constexpr double kCopyNsPerByte = 8e9 / 200e9;

// What is emulated is what crosses.
namespace wire = datapath::command;
static_assert(emulation::kMessageHeader == sizeof(wire::MessageHeader));
static_assert(emulation::kRecordHeader == sizeof(wire::RecordHeader));
static_assert(emulation::kReplyBody == sizeof(wire::ReplyBody) && emulation::kDataItem == sizeof(wire::DataItem));
static_assert(emulation::kLaunchBody == sizeof(wire::LaunchBody) && emulation::kCopyBody == sizeof(wire::CopyBody));
static_assert(emulation::kFenceBody == sizeof(wire::FenceBody));
static_assert(emulation::kMaxInline == wire::kMaxInline && emulation::kMaxPayload == wire::kPayloadPiece);
static_assert(emulation::kReplyBytes == wire::kReplyBytes && emulation::kCommandsPerReply == wire::kCommandsPerReply);

TEST(Emulator, TheRulesAreThoseOfChannels) {
  const command::SessionOptions options;
  EXPECT_EQ(emulation::kFlushBytes, options.flush_bytes);
  EXPECT_EQ(emulation::kFlushCommands, options.flush_commands);
  EXPECT_EQ(emulation::kFlushAfter, static_cast<double>(std::chrono::nanoseconds(options.flush_after).count()));
  const command::ServiceConfig config;
  EXPECT_EQ(emulation::kCredits, config.credits);
  EXPECT_EQ(emulation::kPayloadCredit, config.payload_credit);
}

Trace parse(const std::string& records) {
  Result<Trace> trace =
      parse_trace("{\"fairlead_trace\":1,\"name\":\"n\",\"made\":\"by hand\",\"device_ns\":7000}\n" + records, "a");
  EXPECT_TRUE(trace) << trace.error().to_string();
  return *std::move(trace);
}

std::string launches(int count, const std::string& more = "") {
  std::string records;
  for (int i = 0; i < count; ++i) records += "{\"op\":\"launch\",\"bytes_out\":96" + more + "}\n";
  return records;
}

TEST(Emulator, ABlockingCallTakesARoundTripAndItsTime) {
  const Trace trace = parse(R"({"gap_ns":500,"op":"launch","bytes_out":96,"blocking":true})");
  EXPECT_DOUBLE_EQ(emulate_local(trace).step_ns, 500 + 7000);
  const EmulatedStep step = emulate_remote(trace, {kRtt, kRate});
  EXPECT_DOUBLE_EQ(step.step_ns, 500 + kRtt + (kHeader + kLaunch + kReply) * kNsPerByte + 7000);
  EXPECT_EQ(step.buffers, 1U);
  EXPECT_EQ(step.replies, 1U);
  EXPECT_EQ(step.waits, 1U);
  EXPECT_DOUBLE_EQ(step.waited_ns, step.step_ns - 500);
  EXPECT_DOUBLE_EQ(emulate_remote(trace, {kRtt, 0}).step_ns, 500 + kRtt + 7000);
}

TEST(Emulator, CallsThatDoNotBlockTakeOneRoundTripTogether) {
  const Trace trace = parse(launches(20) + R"({"op":"synchronize"})");
  EXPECT_DOUBLE_EQ(emulate_local(trace).step_ns, 20 * 7000);
  const EmulatedStep step = emulate_remote(trace, {kRtt, kRate});
  EXPECT_EQ(step.buffers, 1U);
  EXPECT_EQ(step.waits, 1U);
  EXPECT_NEAR(step.step_ns, kRtt + (kHeader + 20 * kLaunch + kReply) * kNsPerByte + 20 * 7000, 1e-6);
}

TEST(Emulator, BlockingCallsTakeARoundTripEach) {
  const Trace trace = parse(launches(20, ",\"blocking\":true"));
  const EmulatedStep step = emulate_remote(trace, {kRtt, 0});
  EXPECT_DOUBLE_EQ(step.step_ns, 20 * (kRtt + 7000));
  EXPECT_EQ(step.buffers, 20U);
}

TEST(Emulator, AWaitForWhatIsCompleteIsNone) {
  std::string lines = launches(1, ",\"blocking\":true");
  for (int i = 0; i < 99; ++i) lines += "{\"op\":\"synchronize\"}\n";
  EXPECT_EQ(emulate_remote(parse(lines), {kRtt, 0}).waits, 1U);
}

TEST(Emulator, WhatNobodyWaitsForIsWaitedForAtTheEnd) {
  const EmulatedStep step = emulate_remote(parse(launches(3)), {kRtt, 0});
  EXPECT_DOUBLE_EQ(step.step_ns, kRtt + 3 * 7000);
  EXPECT_EQ(step.waits, 1U);
}

TEST(Emulator, BuffersLeaveWhenTheyAreFull) {
  // 16 + 27 x 144 = 3,904 bytes; one more does not fit 4,000.
  EXPECT_EQ(emulate_remote(parse(launches(27)), {kRtt, 0}).buffers, 1U);
  EXPECT_EQ(emulate_remote(parse(launches(28)), {kRtt, 0}).buffers, 2U);
  std::string marks;
  for (int i = 0; i < 64; ++i) marks += "{\"op\":\"mark\"}\n";
  EXPECT_EQ(emulate_remote(parse(marks), {kRtt, 0}).buffers, 1U);
  EXPECT_EQ(emulate_remote(parse(marks + "{\"op\":\"mark\"}"), {kRtt, 0}).buffers, 2U);
}

TEST(Emulator, BuffersLeaveByTime) {
  // The second call comes 50 us after the first: the first left 20 us after it was made, and is done meanwhile.
  const Trace trace = parse(R"({"op":"launch"}
{"gap_ns":50000,"op":"launch","blocking":true})");
  const EmulatedStep step = emulate_remote(trace, {kRtt, 0});
  EXPECT_EQ(step.buffers, 2U);
  EXPECT_DOUBLE_EQ(step.step_ns, 50'000 + kRtt + 7000);
  // With a launch that takes longer, its end is waited for: 20 us, half a round trip, two launches, half a round trip.
  const Trace slow = parse(R"({"op":"launch","device_ns":100000}
{"gap_ns":50000,"op":"launch","blocking":true})");
  EXPECT_DOUBLE_EQ(emulate_remote(slow, {kRtt, 0}).step_ns, 20'000 + kRtt + 100'000 + 7000);
}

TEST(Emulator, ACopyIsBoundByTheLinksBandwidth) {
  const double size = 4 << 20, piece = emulation::kMaxPayload, pieces = size / piece;
  const Trace in = parse(R"({"op":"copy_in","bytes_out":4194304,"blocking":true})");
  EXPECT_DOUBLE_EQ(emulate_local(in, kDevice).step_ns, size * kCopyNsPerByte);
  // The pieces cross one after the other; the last is copied when all of it is there.
  const EmulatedStep step = emulate_remote(in, {kRtt, kRate}, kDevice);
  EXPECT_NEAR(step.step_ns,
              kRtt + (pieces * kHeader + size + kReply) * kNsPerByte + piece * kCopyNsPerByte +
                  (kHeader + pieces * kCopy) * kNsPerByte,
              (kHeader + pieces * kCopy) * kNsPerByte + 1e-6);  // whether the commands go before or between
  EXPECT_EQ(step.buffers, 1U);

  const Trace out = parse(R"({"op":"copy_out","bytes_back":4194304,"blocking":true})");
  EXPECT_DOUBLE_EQ(emulate_local(out, kDevice).step_ns, size * kCopyNsPerByte);
  const EmulatedStep back = emulate_remote(out, {kRtt, kRate}, kDevice);
  // The first piece is copied before it crosses, the others while the one before them does.
  EXPECT_NEAR(
      back.step_ns,
      kRtt + (kHeader + pieces * kCopy) * kNsPerByte + piece * kCopyNsPerByte + (pieces * kHeader + size) * kNsPerByte,
      (pieces + 1) * kReply * kNsPerByte + 1e-6);  // replies go before bulk
}

TEST(Emulator, SmallCopiesCrossWithCommandAndReply) {
  const Trace trace = parse(R"({"op":"copy_in","bytes_out":100}
{"op":"copy_out","bytes_back":1000,"blocking":true})");
  EXPECT_DOUBLE_EQ(emulate_remote(trace, {kRtt, kRate}, kDevice).step_ns,
                   kRtt + (kHeader + kCopy + 104 + kCopy + kReply + 16 + 1000) * kNsPerByte + 1100 * kCopyNsPerByte);
}

TEST(Emulator, CommandsDoNotWaitForBulk) {
  // The copy of stream 1 takes 3.4 ms to cross; the launch of stream 0 is over long before, and so the gap begins.
  const Trace trace = parse(R"({"op":"copy_in","stream":1,"bytes_out":4194304}
{"op":"launch","bytes_out":96,"blocking":true}
{"op":"mark","gap_ns":10000000,"blocking":true})");
  const EmulatedStep step = emulate_remote(trace, {kRtt, kRate}, kDevice);
  EXPECT_NEAR(step.step_ns, 10e6 + 2 * kRtt + 7000, 500);
  EXPECT_NEAR(step.waited_ns, 2 * kRtt + 7000, 500);
}

TEST(Emulator, FencesHoldOneStreamForAnother) {
  const std::string calls = R"({"op":"launch","stream":1,"device_ns":30000}
{"op":"mark","stream":1}
{"op":"fence","on":1}
)";
  // Stream 0 is first in the buffers' order at the service only by what it waits for.
  EXPECT_DOUBLE_EQ(emulate_remote(parse(calls + R"({"op":"launch","blocking":true})"), {kRtt, 0}).step_ns,
                   kRtt + 30'000 + 7000);
  EXPECT_DOUBLE_EQ(emulate_local(parse(calls + R"({"op":"launch","blocking":true})")).step_ns, 37'000);
}

TEST(Emulator, CreditsHoldTheProgram) {
  // 2,049 marks: the last is appended when the service has said of the first ones.
  std::string marks;
  for (int i = 0; i < 2049; ++i) marks += "{\"op\":\"mark\"}\n";
  EXPECT_DOUBLE_EQ(emulate_remote(parse(marks), {kRtt, 0}).step_ns, 2 * kRtt);
  // 9 MiB: the last eight pieces each wait until one of the first eight is executed.
  const Trace copy = parse(R"({"op":"copy_in","bytes_out":9437184})");
  const double piece = emulation::kMaxPayload * kCopyNsPerByte;
  EXPECT_DOUBLE_EQ(emulate_remote(copy, {1e6, 0}, kDevice).step_ns, 2e6 + 9 * piece);
}

TEST(Emulator, TheLongestRoundTripFollowsTheRule) {
  // 10 blocking calls in 10 x (7 + 93) us: 5 % of 100 us each.
  const Trace trace = parse(launches(10, ",\"blocking\":true,\"gap_ns\":93000"));
  ASSERT_TRUE(longest_round_trip(trace, 0, 0.05));
  EXPECT_NEAR(*longest_round_trip(trace, 0, 0.05), 5000, 5);
  EXPECT_NEAR(*longest_round_trip(trace, 0, 1), 100'000, 100);
  // With a bandwidth, what crosses counts too.
  const double crosses = (kHeader + kLaunch + kReply) * 8e9 / 1e9;
  EXPECT_NEAR(*longest_round_trip(trace, 1e9, 0.05), 5000 - crosses, 5);
  EXPECT_EQ(longest_round_trip(trace, 1e7, 0.05), std::nullopt);
  EXPECT_EQ(longest_round_trip(parse(R"({"op":"mark","gap_ns":10000000000})"), 0, 0.5), kLongestRoundTrip);
}

TEST(Emulator, IsTheSameEveryTime) {
  const Trace trace =
      parse(launches(500, ",\"gap_ns\":777") + R"({"op":"copy_out","bytes_back":99999,"blocking":true})");
  const EmulatedStep one = emulate_remote(trace, {kRtt, kRate}), two = emulate_remote(trace, {kRtt, kRate});
  EXPECT_EQ(one.step_ns, two.step_ns);
  EXPECT_EQ(one.replies, two.replies);
}

}  // namespace
}  // namespace fairlead::bench
