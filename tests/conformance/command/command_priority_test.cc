// Priorities of channels, over every way across and wherever commands run.
#include "tests/conformance/command/command_pair.h"

namespace fairlead {
namespace {

using command::Channel;
using command::pack;
using command::Pointer;

class CommandPriorities : public CommandPair {
 protected:
  Channel open_at(std::int32_t priority) { return must(session->open_channel({.priority = priority})); }
};

TEST_P(CommandPriorities, ACommandGoesBeforeAllThatOthersHaveToRun) {
  constexpr int kTicks = 1500;  // some seconds of them
  Channel low = open_at(0), high = open_at(-1);
  const command::Handle tick = load(low, "tick"), add = load(high, "vector_add");
  const command::Handle x = put(high, {1, 2, 3});
  expect_fine(low);
  expect_fine(high);
  for (int i = 0; i < kTicks; ++i) must(low.launch({tick}, {}));
  low.flush();
  ASSERT_TRUE(comes_true([this] { return kernels.signals().entered.load() > 0; }));
  must(high.launch({add}, pack(Pointer{x}, Pointer{x}, Pointer{x}, 3u)));
  expect_fine(high);
  EXPECT_LT(kernels.signals().entered.load(), kTicks) << "it did not wait for the others' last";
  kernels.signals().open.store(true);
  EXPECT_EQ(get(high, x, 3), (std::vector<float>{2, 4, 6}));
  expect_fine(low);
  EXPECT_EQ(kernels.signals().entered.load(), kTicks);
}

TEST_P(CommandPriorities, OneThatThereIsNotIsTheNearest) {
  EXPECT_EQ(session->limits().least_priority, 0);
  const std::int32_t greatest = session->limits().greatest_priority;
  EXPECT_LT(greatest, 0);
  EXPECT_EQ(open_at(greatest - 1).priority(), greatest);
  EXPECT_EQ(open_at(1).priority(), 0);
  EXPECT_EQ(open(*session).priority(), 0);
}

// Many of one session at a time, each of which ends well; fences order them whatever their priorities.
TEST_P(CommandPriorities, FencesGoThroughAllOfThem) {
  std::vector<Channel> channels;
  for (const std::int32_t priority : {0, -5, -2, 0, -1}) channels.push_back(open_at(priority));
  const command::Handle x = put(channels[0], {1});
  const command::Handle add = load(channels[0], "vector_add");
  command::Mark last = must(channels[0].record());
  for (int i = 0; i < 20; ++i) {
    Channel& channel = channels[static_cast<std::size_t>(i * 3 + 1) % channels.size()];
    must(channel.fence(last));
    must(channel.launch({add}, pack(Pointer{x}, Pointer{x}, Pointer{x}, 1u)));
    last = must(channel.record());
  }
  must(channels[3].fence(last));
  EXPECT_EQ(get(channels[3], x, 1), (std::vector<float>{1 << 20}));
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandPriorities, testing::ValuesIn(command_ways()),
                         [](const auto& each) { return each.param.name(); });

}  // namespace
}  // namespace fairlead
