// Graphs over every way across, on both devices: uploaded once and launched as one command each, refused by the number
// of what is wrong in them, bounded, and freed.
#include "fairlead/command_graph.h"

#include <gmock/gmock.h>

#include "datapath/command/wire.h"
#include "tests/conformance/command/command_pair.h"
#include "tests/conformance/greeting_service.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Failure;
using command::Graph;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Scope;
using command::Session;
using testing::HasSubstr;

class CommandGraphs : public CommandPair {
 protected:
  /// What the one tenant that there is has of memory.
  [[nodiscard]] std::uint64_t memory() const {
    const std::vector<command::TenantStats> all = service->tenants();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? 0 : all[0].memory_bytes;
  }
};

// sum += step, a copy of it, and what is behind it filled.
TEST_P(CommandGraphs, RunAsTheirCommandsWould) {
  Channel channel = open(*session);
  const std::vector<float> step{1, 2, 3, 4};
  const Handle x = put(channel, step), sum = put(channel, std::vector<float>(4)),
               copy = put(channel, {9, 9, 9, 9, 9, 9});
  const Handle add = load(channel, "vector_add"), graph = session->new_handle();
  Graph commands;
  EXPECT_EQ(must(commands.launch({add}, pack(Pointer{sum}, Pointer{x}, Pointer{sum}, 4u))), 1u);
  EXPECT_EQ(must(commands.copy_within(copy, 4, sum, 0, 16)), 2u);
  EXPECT_EQ(must(commands.fill(copy, 20, 4, 0)), 3u);
  EXPECT_EQ(must(commands.fill(copy, 24, 0, 7)), 4u) << "of nothing, at the very end";
  EXPECT_EQ(commands.records(), 4u);
  must(channel.upload(graph, commands));
  EXPECT_EQ(get(channel, sum, 4), std::vector<float>(4)) << "it is not run when it is uploaded";
  const std::uint64_t before = channel.last();
  for (int i = 0; i < 100; ++i) must(channel.launch_graph(graph));
  EXPECT_EQ(channel.last() - before, 100u);
  EXPECT_EQ(get(channel, sum, 4), (std::vector<float>{100, 200, 300, 400}));
  EXPECT_EQ(get(channel, copy, 6), (std::vector<float>{9, 100, 200, 300, 400, 0}));
  // What changes between launches is in memory.
  must(channel.fill(x, 0, 16, 0));
  must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, sum, 4), (std::vector<float>{100, 200, 300, 400}));
  must(channel.release_graph(graph));
  expect_fine(channel);
  Graph other;
  must(other.fill(sum, 0, 16, 0));
  must(channel.upload(graph, other));
  must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, sum, 4), std::vector<float>(4));
}

// Past what goes along with the command, and from another channel than it was uploaded by.
TEST_P(CommandGraphs, LargeOnesCrossAsPayload) {
  Channel channel = open(*session), other = open(*session);
  const Handle one = put(channel, {1}), sum = put(channel, {0}), add = load(channel, "vector_add");
  const Handle graph = session->new_handle();
  Graph commands;
  while (commands.records() < 300) must(commands.launch({add}, pack(Pointer{sum}, Pointer{one}, Pointer{sum}, 1u)));
  EXPECT_GT(commands.size(), datapath::command::kMaxInline);
  EXPECT_EQ(commands.bytes().size(), commands.size());
  must(channel.upload(graph, commands));
  must(other.fence(must(channel.record())));
  for (int i = 0; i < 10; ++i) must(other.launch_graph(graph));
  EXPECT_EQ(get(other, sum, 1)[0], 3000);
}

// A function is what its handle named when the graph was uploaded.
TEST_P(CommandGraphs, AreBoundWhenTheyAreUploaded) {
  Channel channel = open(*session);
  const Handle x = put(channel, {1, 5}), y = put(channel, {0, 0}), function = load(channel, "vector_add");
  const Handle graph = session->new_handle();
  Graph commands;
  must(commands.launch({function}, pack(Pointer{x}, Pointer{x}, Pointer{y}, 2u)));
  must(channel.upload(graph, commands));
  must(channel.load(function, "nothing"));
  must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, y, 2), (std::vector<float>{2, 10}));
}

TEST_P(CommandGraphs, WhatIsWrongIsNamedByItsNumber) {
  Channel channel = open(*session);
  const Handle x = put(channel, {1, 2}), y = put(channel, {3}), add = load(channel, "vector_add");
  const Handle unknown{987'654}, graph = session->new_handle();
  const auto refused = [&](auto wrong, std::int32_t result, std::string_view words) {
    Graph commands;
    must(commands.fill(x, 0, 8, 0));
    wrong(commands);
    const std::uint64_t sequence = must(channel.upload(graph, commands));
    must(channel.launch_graph(graph));
    const Failure failure = failure_of(channel);
    EXPECT_EQ(failure.sequence, sequence) << words;
    EXPECT_EQ(failure.scope, Scope::kCommand);
    EXPECT_EQ(failure.result, result) << failure.text;
    EXPECT_THAT(failure.text, HasSubstr("command 2 of graph " + std::to_string(graph.bits))) << words;
    EXPECT_THAT(failure.text, HasSubstr(words));
  };
  refused([&](Graph& of) { must(of.launch({unknown}, {})); }, command::kInvalidHandle, "names no function");
  refused([&](Graph& of) { must(of.launch({add}, pack(Pointer{x}, Pointer{x}, Pointer{x}))); }, command::kInvalidValue,
          "52 bytes of parameters, and was given 48");
  refused([&](Graph& of) { must(of.launch({add}, pack(Pointer{unknown}, Pointer{x}, Pointer{x}, 1u))); },
          command::kInvalidHandle, "parameter 0");
  refused([&](Graph& of) { must(of.launch({add}, pack(Pointer{x}, Pointer{x, 9}, Pointer{x}, 0u))); },
          command::kIllegalAddress, "parameter 1");
  refused([&](Graph& of) { must(of.fill(y, 1, 4, 0)); }, command::kInvalidValue, "4 bytes from 1 on");
  refused([&](Graph& of) { must(of.fill(unknown, 0, 4, 0)); }, command::kInvalidHandle, "names no allocation");
  refused([&](Graph& of) { must(of.copy_within(y, 0, x, 0, 8)); }, command::kInvalidValue, "8 bytes from 0 on");
  refused([&](Graph& of) { must(of.copy_within(y, 0, x, 5, 4)); }, command::kInvalidValue, "4 bytes from 5 on");
  refused([&](Graph& of) { must(of.copy_within(y, 0, unknown, 0, 4)); }, command::kInvalidHandle, "no allocation");
  EXPECT_EQ(get(channel, x, 2), (std::vector<float>{1, 2})) << "what comes before it did not run either";
  EXPECT_EQ(memory(), 12u) << "nothing is kept of them";
  must(channel.launch_graph(graph));
  EXPECT_THAT(failure_of(channel).text, HasSubstr("names no graph (any more)"));
  must(channel.release_graph(graph));
  EXPECT_EQ(failure_of(channel).result, command::kInvalidHandle);
  Graph fine;
  must(fine.fill(x, 0, 8, 0));
  must(channel.upload(graph, fine));
  must(channel.upload(graph, fine));
  EXPECT_THAT(failure_of(channel).text, HasSubstr("names a graph already"));
  must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, x, 2), std::vector<float>(2));
}

TEST_P(CommandGraphs, WhatCanBeSeenIsRefusedAtOnce) {
  Channel channel = open(*session);
  const Handle x{1}, add{2};
  Graph graph;
  EXPECT_FALSE(graph.launch({Handle()}, {}));
  EXPECT_FALSE(graph.launch({add, {0}}, {}));
  EXPECT_FALSE(graph.launch({add}, std::vector<std::byte>(4097)));
  EXPECT_FALSE(graph.fill({}, 0, 1, 0));
  EXPECT_FALSE(graph.copy_within(x, 0, {}, 0, 1));
  EXPECT_THAT(graph.copy_within(x, 4, x, 0, 5).error().message(), HasSubstr("overlap"));
  EXPECT_TRUE(graph.copy_within(x, 4, x, 0, 4));
  EXPECT_EQ(graph.records(), 1u) << "what was refused was not added";
  EXPECT_FALSE(channel.upload({}, graph));
  EXPECT_FALSE(channel.upload({1}, Graph()));
  EXPECT_FALSE(channel.launch_graph({}));
  EXPECT_FALSE(channel.release_graph({}));
  EXPECT_FALSE(Channel().upload({1}, graph));
  must(graph.launch({add, {1}, {1025}}, {}));
  const Result<std::uint64_t> uploaded = channel.upload({1}, graph);
  ASSERT_FALSE(uploaded);
  EXPECT_THAT(uploaded.error().message(), HasSubstr("command 2 of the graph: a block of 1025 x 1 x 1"));
  EXPECT_EQ(channel.last(), 0u);
  EXPECT_FALSE(channel.failure());
}

TEST_P(CommandGraphs, MemoryThatIsReleasedEndsThoseThatUseIt) {
  Channel channel = open(*session);
  const Handle x = put(channel, {1, 2}), y = put(channel, {3, 4}), add = load(channel, "vector_add");
  const Handle both = session->new_handle(), one = session->new_handle();
  Graph commands, other;
  must(commands.fill(x, 0, 8, 0));
  must(commands.launch({add}, pack(Pointer{x}, Pointer{y}, Pointer{x}, 2u)));
  must(other.fill(x, 0, 4, 0));
  must(channel.upload(both, commands));
  must(channel.upload(one, other));
  must(channel.release(y));
  must(channel.allocate(y, 8));
  const std::uint64_t sequence = must(channel.launch_graph(both));
  const Failure failure = failure_of(channel);
  EXPECT_EQ(failure.sequence, sequence);
  EXPECT_EQ(failure.scope, Scope::kCommand);
  EXPECT_EQ(failure.result, command::kInvalidHandle);
  EXPECT_THAT(failure.text, HasSubstr("command 2 of graph " + std::to_string(both.bits) + " uses allocation " +
                                      std::to_string(y.bits) + ", which was released"));
  EXPECT_EQ(get(channel, x, 2), (std::vector<float>{1, 2})) << "none of it ran";
  must(channel.launch_graph(one));
  EXPECT_EQ(get(channel, x, 2), (std::vector<float>{0, 2})) << "which does not use it";
  must(channel.release_graph(both));
  must(channel.upload(both, commands));
  must(channel.launch_graph(both));
  EXPECT_EQ(get(channel, x, 2), std::vector<float>(2)) << "memory comes as zeros";
}

TEST_P(CommandGraphs, AreBoundedAndCountAsMemory) {
  start({.graph_records = 10, .graph_bytes = 600}, 1 << 20);
  EXPECT_EQ(session->limits().graph_records, 10u);
  EXPECT_EQ(session->limits().graph_bytes, 600u);
  Channel channel = open(*session);
  const Handle x = put(channel, {1});
  expect_fine(channel);
  const std::uint64_t before = memory();
  const auto of = [&](int commands) {
    Graph graph;
    for (int i = 0; i < commands; ++i) must(graph.fill(x, 0, 4, 0));
    return graph;
  };
  EXPECT_EQ(of(1).size(), 40u);
  EXPECT_THAT(channel.upload({1}, of(11)).error().message(), HasSubstr("there are 1 to 10 commands in at most 600"));
  EXPECT_THAT(channel.upload({1}, of(16)).error().message(), HasSubstr("640 bytes"));
  must(channel.upload({1}, of(6)));
  expect_fine(channel);
  EXPECT_EQ(memory(), before + 240);
  must(channel.upload({2}, of(5)));
  const Failure failure = failure_of(channel);
  EXPECT_EQ(failure.result, command::kOutOfMemory);
  EXPECT_THAT(failure.text, HasSubstr("a graph of 5 commands in 200 bytes beside 6 in 240, of 10 in 600"));
  must(channel.release_graph({1}));
  must(channel.upload({2}, of(5)));
  must(channel.upload({3}, of(5)));
  expect_fine(channel);
  EXPECT_EQ(memory(), before + 400);
  session->close();
  EXPECT_TRUE(comes_true([this] { return memory() == 0; })) << "it goes with the session";
}

// As cuGraphExecKernelNodeSetParams: what was launched before has the parameters of that time.
TEST_P(CommandGraphs, ParametersOfLaunchesChangeBetweenRuns) {
  Channel channel = open(*session), other = open(*session);
  const Handle x = put(channel, {1, 2}), y = put(channel, {10, 20}), sum = put(channel, {0, 0});
  const Handle saxpy = load(channel, "saxpy"), graph = session->new_handle();
  Graph commands;
  must(commands.fill(sum, 0, 8, 0));
  EXPECT_EQ(must(commands.launch({saxpy}, pack(1.0f, Pointer{x}, Pointer{sum}, 2u))), 2u);
  must(channel.upload(graph, commands));
  std::vector<std::vector<float>> seen;
  const auto run = [&](Channel& on) {
    must(on.launch_graph(graph));
    seen.push_back(get(on, sum, 2));
  };
  run(channel);
  must(channel.update_graph(graph, 2, {}, pack(3.0f, Pointer{y}, Pointer{sum}, 2u)));
  run(channel);
  for (float factor = 0; factor < 50; ++factor) {  // nobody waits in between
    must(channel.update_graph(graph, 2, {}, pack(factor, Pointer{x}, Pointer{sum}, 2u)));
    must(channel.launch_graph(graph));
  }
  seen.push_back(get(channel, sum, 2));
  const command::Mark mark = must(channel.record());
  must(other.fence(mark));
  run(other);
  EXPECT_EQ(seen, (std::vector<std::vector<float>>{{1, 2}, {30, 60}, {49, 98}, {49, 98}}));

  // What can be seen to be wrong here is no failure of the channel.
  const auto parameters = pack(1.0f, Pointer{x}, Pointer{sum}, 2u);
  for (const Status& refused :
       {channel.update_graph(graph, 0, {}, parameters).error(), channel.update_graph({0}, 2, {}, parameters).error(),
        channel.update_graph(graph, 2, {saxpy}, parameters).error(),
        channel.update_graph(graph, 2, {.grid = {0}}, parameters).error()}) {
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.message();
  }
  // What only the service sees fails, and leaves the graph as it was.
  must(channel.update_graph(graph, 1, {}, parameters));
  EXPECT_THAT(failure_of(channel).text, HasSubstr("is no launch"));
  must(channel.update_graph(graph, 2, {}, pack(1.0f, Pointer{{12345}}, Pointer{sum}, 2u)));
  EXPECT_EQ(failure_of(channel).result, command::kInvalidHandle);
  run(channel);
  EXPECT_EQ(seen.back(), (std::vector<float>{49, 98}));
}

TEST_P(CommandGraphs, AnUpdateBringsBackOneWhoseMemoryWasReleased) {
  Channel channel = open(*session);
  const Handle x = put(channel, {1}), y = put(channel, {2}), sum = put(channel, {0});
  const Handle saxpy = load(channel, "saxpy"), graph = session->new_handle();
  Graph commands;
  must(commands.launch({saxpy}, pack(1.0f, Pointer{x}, Pointer{sum}, 1u)));
  must(channel.upload(graph, commands));
  must(channel.release(x));
  must(channel.launch_graph(graph));
  EXPECT_THAT(failure_of(channel).text, HasSubstr("uses allocation " + std::to_string(x.bits)));
  must(channel.update_graph(graph, 1, {}, pack(1.0f, Pointer{y}, Pointer{sum}, 1u)));
  must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, sum, 1), (std::vector<float>{2}));
}

TEST_P(CommandGraphs, AServiceMayTakeNone) {
  start({.graph_records = 0});
  EXPECT_EQ(session->limits().graph_records, 0u);
  Channel channel = open(*session);
  Graph graph;
  must(graph.fill({1}, 0, 1, 0));
  EXPECT_EQ(channel.upload({1}, graph).error().code(), Code::kUnimplemented);
  EXPECT_EQ(channel.launch_graph({1}).error().code(), Code::kUnimplemented);
}

// The kernel fails while it runs, and so does what the session has on the device.
TEST_P(CommandGraphs, AFaultWithinOneNamesItsLaunch) {
  Channel channel = open(*session);
  const Handle x = put(channel, {1}), fault = load(channel, "fault"), graph = session->new_handle();
  Graph commands;
  must(commands.fill(x, 0, 4, 0));
  must(commands.launch({fault}, {}));
  must(channel.upload(graph, commands));
  expect_fine(channel);
  const std::uint64_t sequence = must(channel.launch_graph(graph));
  EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
  ASSERT_TRUE(channel.failure());
  EXPECT_EQ(channel.failure()->sequence, sequence);
  EXPECT_EQ(channel.failure()->scope, Scope::kContext);
  EXPECT_EQ(channel.failure()->result, command::kLaunchFailed);
  if (!GetParam().cuda) {
    EXPECT_THAT(channel.failure()->text,
                HasSubstr("command 2 of graph " + std::to_string(graph.bits) + ": 'fault' failed"));
  }
}

TEST_P(CommandGraphs, AnOlderServiceKnowsNone) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and the service has the other";
  GreetingService older(config_for(GetParam().way), GreetingService::of_version(2));
  Session old = connect(older.address());
  EXPECT_EQ(old.limits().version, 2u);
  EXPECT_EQ(old.limits().graph_records, 0u);
  Channel channel = open(old);
  Graph graph;
  must(graph.fill({1}, 0, 1, 0));
  for (const Status& refused : {channel.upload({1}, graph).error(), channel.launch_graph({1}).error(),
                                channel.release_graph({1}).error(), channel.update_graph({1}, 1, {}, {}).error()}) {
    EXPECT_EQ(refused.code(), Code::kVersionMismatch);
    EXPECT_THAT(refused.message(), HasSubstr("speaks version 2 of the commands' protocol, which knows no graphs"));
  }
  EXPECT_EQ(channel.last(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandGraphs, testing::ValuesIn(command_ways()),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cuda, CommandGraphs, testing::ValuesIn(cuda_command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
