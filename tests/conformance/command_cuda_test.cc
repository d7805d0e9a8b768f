// What command channels promise of a device that works by itself, on the double of the CUDA driver.
#include <gmock/gmock.h>

#include <array>
#include <random>

#include "tests/conformance/command_pair.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::layout;
using command::pack;
using command::Pointer;
using command::Session;
using command::Stage;
using testing::HasSubstr;

class CommandCuda : public CommandPair {};

TEST_P(CommandCuda, ExecutedIsNotComplete) {
  Channel channel = open(*session);
  const Handle memory = session->new_handle();
  must(channel.allocate(memory, 4096));
  expect_fine(channel);
  cuda->hold_copies();
  std::vector<std::byte> large(4096), small(8);
  must(channel.fill(memory, 0, 4096, 0x77));
  must(channel.copy_out(large, memory, 0));
  const std::uint64_t last = must(channel.copy_out(small, memory, 0));
  const Status executed = channel.wait(last, Stage::kExecuted, kPatience);
  EXPECT_TRUE(executed.ok()) << executed.to_string();
  EXPECT_EQ(channel.reached(Stage::kComplete), 1u) << "the device has done nothing";
  EXPECT_EQ(channel.wait(last, Stage::kComplete, std::chrono::milliseconds(1)).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(small[0], std::byte{0}) << "no byte is here before it was copied";
  cuda->let_copies_go();
  expect_fine(channel);
  EXPECT_EQ(channel.reached(Stage::kComplete), last);
  EXPECT_EQ(small[7], std::byte{0x77});
  EXPECT_TRUE(std::ranges::all_of(large, [](std::byte byte) { return byte == std::byte{0x77}; }));
}

INSTANTIATE_TEST_SUITE_P(Cuda, CommandCuda, testing::ValuesIn(cuda_command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
