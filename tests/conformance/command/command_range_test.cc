// A session's range of addresses over every way across, on both devices: what is placed where is known at once, holds
// within structures, and is nobody else's.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "datapath/command/wire.h"
#include "fairlead/command_graph.h"
#include "tests/conformance/command/command_pair.h"
#include "tests/conformance/greeting_service.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Failure;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Scope;
using command::Session;
using testing::HasSubstr;
using Node = TestKernels::Node;

constexpr std::uint64_t kRange = std::uint64_t{1} << 20;

class CommandRanges : public CommandPair {
 protected:
  void SetUp() override { start({}, std::uint64_t{4} << 20, false); }

  /// A session that has one; this process keeps it free, unless the service has it there.
  static command::SessionOptions with_range(std::uint64_t bytes = kRange) {
    command::SessionOptions options = patient();
    options.range_bytes = bytes;
    options.reserve_range_here = GetParam().isolated;
    return options;
  }
  Channel begin() {
    session.emplace(connect(with_range()));
    return open(*session);
  }
  [[nodiscard]] const command::AddressRange& range() const { return session->limits().range; }
  /// The next place of the range.
  std::uint64_t place(std::uint64_t bytes) {
    const std::uint64_t at = next_;
    next_ += (bytes + range().alignment - 1) / range().alignment * range().alignment;
    return range().base + at;
  }
  float get(Channel& channel, Handle from, std::uint64_t offset = 0) {
    float value = 0;
    must(channel.copy_out(std::as_writable_bytes(std::span(&value, 1)), from, offset));
    expect_fine(channel);
    return value;
  }
  static Failure failure_of(Channel& channel) {
    Failure failure = expect_failed(channel);
    (void)channel.recover();  // of a lost context there is none
    return failure;
  }
  [[nodiscard]] std::uint64_t memory() const {
    const std::vector<command::TenantStats> all = service->tenants();
    return all.empty() ? 0 : all[0].memory_bytes;
  }

 private:
  std::uint64_t next_ = 0;
};

// A list whose nodes lie in three allocations, written here before any of them is there.
TEST_P(CommandRanges, AddressesHoldWithinStructures) {
  Channel channel = begin();
  EXPECT_GE(range().bytes, kRange);
  EXPECT_NE(range().base, 0u);
  const Handle sum = load(channel, "list_sum"), out = session->new_handle();
  const Handle nodes[3] = {session->new_handle(), session->new_handle(), session->new_handle()};
  must(channel.allocate_at(out, place(4), 4));
  for (const Handle each : nodes) must(channel.allocate_at(each, place(5000), 5000));
  EXPECT_EQ(must(channel.address_of(out)), range().base);
  EXPECT_EQ(must(channel.address_of(nodes[0], 16)), range().base + range().alignment + 16);
  float expected = 0;
  std::uint64_t head = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const Handle in = nodes[i % 3];
    const Node node{head, static_cast<float>(i)};
    must(channel.copy_in(in, 16 * i, std::as_bytes(std::span(&node, 1))));
    head = must(channel.address_of(in, 16 * i));
    expected += node.value;
  }
  must(channel.launch({sum}, pack(head, Pointer{out})));
  EXPECT_EQ(get(channel, out), expected);
  must(channel.launch({sum}, pack(std::uint64_t{0}, Pointer{out})));
  EXPECT_EQ(get(channel, out), 0) << "an empty one";
  const Handle add = load(channel, "add_one");
  must(channel.launch({add}, pack(must(channel.address_of(out)), 1u)));
  EXPECT_EQ(get(channel, out), 1);
}

TEST_P(CommandRanges, AnAddressThatIsNobodysIsAFailure) {
  Channel channel = begin();
  const Handle add = load(channel, "add_one"), x = session->new_handle(), y = session->new_handle();
  must(channel.allocate_at(x, range().base, 16));
  must(channel.allocate_at(y, range().base + kRange / 2, 16));
  expect_fine(channel);
  const std::uint64_t at = must(channel.address_of(x));
  if (GetParam().cuda) {  // which tells of it afterwards
    must(channel.launch({add}, pack(std::uint64_t{64}, 1u)));
    EXPECT_EQ(failure_of(channel).scope, Scope::kContext);
    return;
  }
  for (const auto& [address, floats] : std::vector<std::pair<std::uint64_t, std::uint32_t>>{{at + 4, 4},
                                                                                            {at + 16, 1},
                                                                                            {at + 20, 0},
                                                                                            {at + 8192, 1},
                                                                                            {at - 4, 1},
                                                                                            {0, 1},
                                                                                            {at + 2, 1},
                                                                                            {~0ull - 3, 1},
                                                                                            {at, 0x3fff'ffff}}) {
    must(channel.launch({add}, pack(address, floats)));
    const Failure failure = failure_of(channel);
    EXPECT_EQ(failure.scope, Scope::kCommand) << address << ": " << failure.text;
    EXPECT_EQ(failure.result, command::kIllegalAddress);
    EXPECT_THAT(failure.text, HasSubstr("parameter 0 of 'add_one'"));
  }
  must(channel.launch({add}, pack(at, 4u)));
  EXPECT_EQ(get(channel, x, 12), 1);
  // One in a structure is the kernel's to look at.
  const Node node{at + 64, 1};
  must(channel.copy_in(x, 0, std::as_bytes(std::span(&node, 1))));
  must(channel.launch({load(channel, "list_sum")}, pack(at, Pointer{y})));
  const Failure failure = failure_of(channel);
  EXPECT_EQ(failure.scope, Scope::kContext);
  EXPECT_THAT(failure.text, HasSubstr("an address in the list is nobody's"));
}

TEST_P(CommandRanges, PlacesAreChecked) {
  Channel channel = begin();
  const Handle x = session->new_handle(), y = session->new_handle(), z = session->new_handle();
  const std::uint64_t base = range().base, step = range().alignment;
  for (const auto& [address, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{base, 0},
                                                            {base + 1, 8},
                                                            {base - step, 8},
                                                            {base + range().bytes, 8},
                                                            {base + step, range().bytes},
                                                            {base, ~std::uint64_t{0}},
                                                            {0, 8},
                                                            {~std::uint64_t{0} - step + 1, step}}) {
    EXPECT_EQ(channel.allocate_at(x, address, bytes).status().code(), Code::kInvalidArgument) << address;
  }
  EXPECT_EQ(channel.allocate_at({}, base, 8).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(channel.allocate(x, 8).error().message(), HasSubstr("the client places its memory: allocate_at()"));
  EXPECT_EQ(channel.address_of(x).status().code(), Code::kNotFound);
  EXPECT_EQ(channel.last(), 0u) << "none of that was sent";

  must(channel.allocate_at(x, base + step, step + 1));
  EXPECT_EQ(channel.address_of(x, step + 2).status().code(), Code::kOutOfRange);
  must(channel.fill(x, 0, step + 1, 0x5a));
  for (const auto& [address, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {base + step, 1}, {base + 2 * step, 1}, {base, step + 1}, {base, 8 * step}}) {
    const std::uint64_t sequence = must(channel.allocate_at(y, address, bytes));
    const Failure failure = failure_of(channel);
    EXPECT_EQ(failure.sequence, sequence);
    EXPECT_EQ(failure.scope, Scope::kCommand);
    EXPECT_EQ(failure.result, command::kInvalidValue);
    EXPECT_THAT(failure.text, HasSubstr("overlap"));
  }
  must(channel.allocate_at(y, base, step));
  must(channel.allocate_at(z, base + 3 * step, 8));
  EXPECT_THAT(channel.allocate_at(z, base + 4 * step, 8).error().message(), HasSubstr("names memory that was placed"));
  EXPECT_EQ(must(channel.address_of(z)), base + 3 * step);
  must(channel.release(x));
  EXPECT_EQ(channel.address_of(x).status().code(), Code::kNotFound);
  // Another channel, behind a fence; and what was there is gone.
  Channel other = open(*session);
  must(other.fence(must(channel.record())));
  must(other.allocate_at(x, base + 2 * step, step));
  EXPECT_EQ(get(other, x), 0);
}

TEST_P(CommandRanges, OfTwoSessionsAreDisjoint) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and this takes several clients";
  std::vector<Session> sessions;
  for (int i = 0; i < 4; ++i) {
    sessions.push_back(connect(with_range()));
    const command::AddressRange& own = sessions.back().limits().range;
    for (int j = 0; j < i; ++j) {
      const command::AddressRange& other = sessions[static_cast<std::size_t>(j)].limits().range;
      EXPECT_TRUE(own.base + own.bytes <= other.base || other.base + other.bytes <= own.base);
    }
  }
  if (!GetParam().isolated) return;
  const auto is_free = [bytes = kRange](std::uint64_t base) {
    void* const at = ::mmap(reinterpret_cast<void*>(base), bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != MAP_FAILED) ::munmap(at, bytes);
    return at != MAP_FAILED;
  };
  const std::uint64_t base = sessions[0].limits().range.base;
  EXPECT_FALSE(is_free(base)) << "nothing of this process gets these";
  sessions.erase(sessions.begin());
  EXPECT_TRUE(is_free(base));
}

TEST_P(CommandRanges, AreTheTenantsMemoryFromTheBeginning) {
  Channel channel = begin();
  EXPECT_EQ(memory(), kRange);
  must(channel.allocate_at({1}, place(5000), 5000));
  expect_fine(channel);
  EXPECT_EQ(memory(), kRange) << "it is part of it";
  session->close();
  EXPECT_TRUE(comes_true([this] { return memory() == 0; }));
  if (test::over_memif()) return;
  const Result<Session> large =
      Session::connect(*client, service->listen_address(), with_range(std::uint64_t{5} << 20));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(large.error().message(), HasSubstr("a range of 5242880 bytes; a session has 1 to 4194304"));
  EXPECT_TRUE(comes_true([this] { return memory() == 0; }));
}

TEST_P(CommandRanges, ThereIsNoneUnlessItIsAskedFor) {
  session.emplace(connect());
  EXPECT_EQ(range().bytes, 0u);
  Channel channel = open(*session);
  EXPECT_THAT(channel.allocate_at({1}, 4096, 8).error().message(), HasSubstr("set SessionOptions::range_bytes"));
  must(channel.allocate({1}, 8));
  EXPECT_EQ(channel.address_of({1}).status().code(), Code::kNotFound);
  expect_fine(channel);
}

// A graph that was given an address of memory knows of it on the host: it is checked there.
TEST_P(CommandRanges, GraphsTakeAddresses) {
  Channel channel = begin();
  const Handle x = session->new_handle(), add = load(channel, "add_one"), graph = session->new_handle();
  must(channel.allocate_at(x, place(8), 8));
  command::Graph commands;
  must(commands.launch({add}, pack(must(channel.address_of(x)), 2u)));
  must(channel.upload(graph, commands));
  for (int i = 0; i < 5; ++i) must(channel.launch_graph(graph));
  EXPECT_EQ(get(channel, x, 4), 5);
  if (GetParam().cuda) return;
  must(channel.release(x));
  must(channel.launch_graph(graph));
  EXPECT_THAT(failure_of(channel).text, HasSubstr("which was released since"));
}

TEST_P(CommandRanges, WhatAServiceSaysIsLookedAt) {
  if (test::over_memif()) GTEST_SKIP() << "a wire with two ends, and the service has the other";
  const auto refused = [this](GreetingService::Bytes greeting, Code code, std::string_view words) {
    const GreetingService service(config_for(GetParam().way), std::move(greeting));
    command::SessionOptions options = with_range();
    options.reserve_range_here = true;
    const Result<Session> made = Session::connect(*client, service.address(), options);
    ASSERT_FALSE(made) << words;
    EXPECT_EQ(made.error().code(), code) << made.error().to_string();
    EXPECT_THAT(made.error().message(), HasSubstr(words));
  };
  const auto with = [](datapath::command::WelcomeMore more) {
    return datapath::command::welcome_message(GreetingService::welcome(3), more);
  };
  static const int kHere = 0;
  const auto here = reinterpret_cast<std::uint64_t>(&kHere) / 4096 * 4096;
  refused(GreetingService::of_version(2), Code::kVersionMismatch,
          "version 2 of the commands' protocol, which knows no ranges");
  refused(GreetingService::of_version(3), Code::kDataLoss, "the service's welcome makes no sense");
  refused(with({.range_alignment = 4096, .range_base = here, .range_bytes = kRange}), Code::kUnavailable,
          "are not free in this process; connect again");
  refused(with({.range_alignment = 4096, .range_base = 1 << 30, .range_bytes = kRange - 1}), Code::kDataLoss,
          "makes no sense; it was asked for 1048576");
  refused(with({.range_alignment = 4096, .range_base = 1 << 30, .range_bytes = std::uint64_t{1} << 45}),
          Code::kDataLoss, "makes no sense; it was asked for 1048576");
  refused(with({.range_alignment = 4096, .range_base = 1 << 30, .range_bytes = kRange + (2 << 20) + 1}),
          Code::kDataLoss, "makes no sense; it was asked for 1048576");
  refused(with({.range_alignment = 4096, .range_base = ~0ull - 4095, .range_bytes = kRange}), Code::kDataLoss,
          "no sense");
  refused(with({.range_alignment = 48, .range_base = 1 << 30, .range_bytes = kRange}), Code::kDataLoss, "no sense");
  refused(with({.range_alignment = 0, .range_base = 1 << 30, .range_bytes = kRange}), Code::kDataLoss, "no sense");
  refused(with({}), Code::kDataLoss, "0 bytes at 0x0 makes no sense");
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandRanges, testing::ValuesIn(command_ways()),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cuda, CommandRanges, testing::ValuesIn(cuda_command_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
