// What command channels promise of a device that works by itself, on the double of the CUDA driver.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <random>

#include "tests/conformance/command/command_pair.h"

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

class CommandCuda : public CommandPair {
 protected:
  /// An image that is known to the device and brought along by nobody, of some kilobytes at least.
  std::vector<std::byte> image(const std::string& name, std::size_t kilobytes = 1) {
    const std::string whole = name + std::string(kilobytes << 10, '.');
    return cuda->code(whole).image;
  }
  /// Adds 1 and 2 in a session of its own, with a function of that image.
  void use(const std::vector<std::byte>& image) {
    Session own = connect();
    EXPECT_GT(own.limits().modules, 0u);
    Channel channel = open(own);
    const Handle module = own.new_handle(), add = own.new_handle(), x = own.new_handle();
    must(channel.load_module(module, image));
    must(channel.load(add, module, "vector_add", layout<Pointer, Pointer, Pointer, std::uint32_t>()));
    must(channel.allocate(x, 8));
    const std::array<float, 2> in{1, 2};
    must(channel.copy_in(x, 0, std::as_bytes(std::span(in))));
    must(channel.launch({add}, pack(Pointer{x}, Pointer{x, 4}, Pointer{x}, 1u)));
    float out = 0;
    must(channel.copy_out(std::as_writable_bytes(std::span(&out, 1)), x, 0));
    expect_fine(channel);
    EXPECT_EQ(out, 3);
  }
};

TEST_P(CommandCuda, AnImageIsSentOnce) {
  const std::vector<std::byte> small = image("small"), large = image("large", 5000);
  use(small);
  EXPECT_EQ(service->stats().modules_sent, 1u);
  use(large);
  for (int i = 0; i < 3; ++i) {
    use(small);
    use(large);
  }
  EXPECT_EQ(service->stats().modules_sent, 2u) << "the service had them";
  EXPECT_EQ(service->stats().modules_cached, 2u);
}

TEST_P(CommandCuda, ImagesThatNobodyAskedForTheLongestGo) {
  // Room for two.
  start({.module_cache_bytes = image("one", 10).size() * 5 / 2}, 8 << 20);
  const std::vector<std::byte> one = image("one", 10), two = image("two", 10), three = image("three", 10);
  use(one);
  use(two);
  use(one);
  use(three);  // and the second goes
  EXPECT_EQ(service->stats().modules_cached, 2u);
  EXPECT_EQ(service->stats().modules_sent, 3u);
  use(one);
  EXPECT_EQ(service->stats().modules_sent, 3u);
  use(two);
  EXPECT_EQ(service->stats().modules_sent, 4u);
  use(image("huge", 150));
  EXPECT_EQ(service->stats().modules_cached, 2u) << "more than all of it";
}

TEST_P(CommandCuda, ModulesOfSeveralChannelsTakeTurns) {
  std::vector<Channel> channels;
  for (int i = 0; i < 4; ++i) channels.push_back(open(*session));
  for (std::size_t i = 0; i < 12; ++i) {
    Channel& channel = channels[i % channels.size()];
    const Handle module = session->new_handle(), function = session->new_handle();
    must(channel.load_module(module, image("turn " + std::to_string(i), 700)));
    must(channel.load(function, module, "nothing", {}));
    must(channel.launch({function}, {}));
  }
  for (Channel& channel : channels) expect_fine(channel);
  EXPECT_EQ(service->stats().modules_sent, 12u);
}

TEST_P(CommandCuda, WhatIsWrongWithModulesIsSaid) {
  const std::size_t most = image("good").size() + (19 << 10);
  start({.module_bytes = most}, 8 << 20);
  Channel channel = open(*session);
  const Handle module = session->new_handle(), function = session->new_handle();
  const auto expect = [&](std::int32_t result, std::string_view words) {
    const command::Failure failure = failure_of(channel);
    EXPECT_EQ(failure.sequence, channel.last() - 1) << "the last but the recovery";
    EXPECT_EQ(failure.scope, command::Scope::kCommand);
    EXPECT_EQ(failure.result, result);
    EXPECT_THAT(failure.text, HasSubstr(words));
  };
  EXPECT_FALSE(channel.load_module({}, image("x")));
  EXPECT_FALSE(channel.load_module(module, {}));
  EXPECT_FALSE(channel.load(function, {}, "f", {}));
  EXPECT_FALSE(channel.load(function, module, "", {}));
  EXPECT_FALSE(channel.load(function, module, "f", std::vector<command::Parameter>(257)));
  must(channel.load_module(module, image("large", 30)));
  expect(command::kOutOfMemory, fmt::format("this service takes 1 to {} (ServiceConfig::module_bytes)", most));
  const std::string noise = "int main() {}", unknown = ".version 1.0 but nobody knows it";
  must(channel.load_module(module, std::as_bytes(std::span(noise))));
  expect(200, "neither PTX, nor a cubin, nor a fatbin");
  must(channel.load_module(module, std::as_bytes(std::span(unknown))));
  expect(218, "the driver says: ptxas");
  must(channel.load(function, module, "nothing", {}));
  expect(command::kInvalidHandle, "names no module");
  must(channel.load_module(module, image("good")));
  expect_fine(channel);
  must(channel.load_module(module, image("good")));
  expect(command::kInvalidValue, "names a module already");
  must(channel.load(function, module, "no_such", {}));
  expect(command::kNoSuchName, "'no_such'");
  must(channel.load(function, module, "saxpy", layout<float, Pointer, Pointer>()));
  expect(command::kInvalidValue, "'saxpy' takes more parameters than the 3");
  must(channel.load(function, module, "saxpy", layout<float, Pointer, Pointer, std::uint32_t, float>()));
  expect(command::kInvalidValue, "'saxpy' takes fewer parameters than the 5");
  must(channel.load(function, module, "saxpy", layout<double, Pointer, Pointer, std::uint32_t>()));
  expect(command::kInvalidValue, "parameter 0 of 'saxpy' has 4 bytes at 0, not 8 at 0");
  must(channel.load(function, module, "saxpy", std::vector<command::Parameter>{{4, 3}}));
  expect(command::kInvalidValue, "at a multiple of 3");
  must(channel.load(function, module, "saxpy", layout<float, Pointer, Pointer, std::uint32_t>()));
  expect_fine(channel);
}

TEST_P(CommandCuda, ExecutedIsNotComplete) {
  auto* const held = cuda->find_double();
  if (held == nullptr) GTEST_SKIP() << "a device that is there does not wait for tests";
  Channel channel = open(*session);
  const Handle memory = session->new_handle();
  must(channel.allocate(memory, 4096));
  expect_fine(channel);
  held->hold_copies();
  std::vector<std::byte> large(4096), small(8);
  must(channel.fill(memory, 0, 4096, 0x77));
  must(channel.copy_out(large, memory, 0));
  const std::uint64_t last = must(channel.copy_out(small, memory, 0));
  const Status executed = channel.wait(last, Stage::kExecuted, kPatience);
  EXPECT_TRUE(executed.ok()) << executed.to_string();
  EXPECT_EQ(channel.reached(Stage::kComplete), 1u) << "the device has done nothing";
  EXPECT_EQ(channel.wait(last, Stage::kComplete, std::chrono::milliseconds(1)).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(small[0], std::byte{0}) << "no byte is here before it was copied";
  held->let_copies_go();
  expect_fine(channel);
  EXPECT_EQ(channel.reached(Stage::kComplete), last);
  EXPECT_EQ(small[7], std::byte{0x77});
  EXPECT_TRUE(are_all(large, std::byte{0x77}));
}

/// Those whose sessions have processes of their own. Their doubles know no image but those that come along: it is the
/// driver that refuses others.
class CommandCudaProcesses : public CommandPair {
 protected:
  /// The words of the driver, which has it.
  void refuse(command::Session& own, const std::string& image) {
    Channel channel = open(own);
    must(channel.load_module(own.new_handle(), std::as_bytes(std::span(image))));
    EXPECT_THAT(failure_of(channel).text, HasSubstr("the driver says: ptxas"));
  }
};

TEST_P(CommandCudaProcesses, ShareWhatClientsSent) {
  const std::string small = ".version 1.0 small", large = ".version 1.0 large" + std::string(3 << 20, '.');
  refuse(*session, large);
  EXPECT_EQ(service->stats().modules_sent, 1u);
  for (int i = 0; i < 2; ++i) {
    command::Session own = connect();
    refuse(own, small);
    refuse(own, large);
  }
  EXPECT_EQ(service->stats().modules_sent, 2u) << "the service had them";
  EXPECT_EQ(service->stats().modules_cached, 2u);
}

std::vector<CommandWay> process_ways() {
  std::vector<CommandWay> all = cuda_command_ways();
  std::erase_if(all, [](const CommandWay& each) { return !each.isolated; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Cuda, CommandCudaProcesses, testing::ValuesIn(process_ways()),
                         [](const auto& info) { return info.param.name(); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommandCudaProcesses);

/// Those whose double is this process's.
std::vector<CommandWay> own_ways() {
  std::vector<CommandWay> all = cuda_command_ways();
  std::erase_if(all, [](const CommandWay& each) { return each.isolated; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cuda, CommandCuda, testing::ValuesIn(own_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
