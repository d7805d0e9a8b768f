// Tenants that try to read what is another's: by handles that are not theirs, past the ends of what is, and in memory
// that was somebody's before. Over every way, on the host and on a GPU that is the double's.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <random>

#include "tests/conformance/command/command_tenants.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Handle;
using command::pack;
using command::Pointer;
using command::Session;

constexpr std::byte kUntouched{0xee}, kSecret{0x5a};
constexpr std::size_t kBytes = 5000;

class CommandHostile : public CommandTenants {
 protected:
  /// It fails as a command does that was refused, and the channel goes on; its CUresult.
  static std::int32_t refused(Channel& channel, const std::function<Result<std::uint64_t>()>& append) {
    const std::uint64_t sequence = must(append());
    EXPECT_EQ(channel.synchronize(kPatience).code(), Code::kAborted);
    const std::optional<command::Failure> failure = channel.failure();
    EXPECT_TRUE(failure);
    if (!failure) return 0;
    EXPECT_EQ(failure->sequence, sequence);
    EXPECT_EQ(failure->scope, command::Scope::kCommand) << failure->text;
    EXPECT_TRUE(channel.recover().ok());
    return failure->result;
  }
  /// All of a new allocation.
  static std::vector<std::byte> look(Channel& channel, Handle handle, std::size_t bytes) {
    std::vector<std::byte> seen(bytes, kUntouched);
    must(channel.copy_out(seen, handle, 0));
    expect_fine(channel);
    return seen;
  }
};

TEST_P(CommandHostile, HandlesOfOthersNameNothing) {
  serve({{.name = "trainer"}, {.name = "guest"}});
  Result<Session> victim = begin("trainer"), hostile = begin("guest"), again = begin("trainer");
  ASSERT_TRUE(victim && hostile && again);
  Channel own = open(*victim);
  const std::vector<std::byte> secret(kBytes, kSecret);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    must(own.allocate({i}, kBytes));
    must(own.copy_in({i}, 0, secret));
    must(own.load({i}, "vector_add"));
  }
  expect_fine(own);
  // Nor in another session of the same tenant.
  for (Session* const session : {&*hostile, &*again}) {
    Channel channel = open(*session);
    const Handle mine{1000};
    must(channel.allocate(mine, kBytes));
    must(channel.load({1000}, "vector_add"));
    std::vector<std::byte> seen(kBytes, kUntouched);
    for (std::uint64_t i = 1; i <= 6; ++i) {
      const Handle theirs{i};
      const std::function<Result<std::uint64_t>()> tries[] = {
          [&] { return channel.copy_out(seen, theirs, 0); },
          [&] { return channel.copy_within(mine, 0, theirs, 0, kBytes); },
          [&] { return channel.copy_within(theirs, 0, mine, 0, kBytes); },
          [&] { return channel.copy_in(theirs, 0, seen); },
          [&] { return channel.fill(theirs, 0, kBytes, 1); },
          [&] { return channel.release(theirs); },
          [&] { return channel.launch({theirs}, pack(Pointer{mine}, Pointer{mine}, Pointer{mine}, 10u)); },
          [&] { return channel.launch({{1000}}, pack(Pointer{theirs}, Pointer{theirs}, Pointer{mine}, 10u)); },
          [&] { return channel.launch({{1000}}, pack(Pointer{mine}, Pointer{mine}, Pointer{theirs}, 10u)); },
      };
      for (std::size_t n = 0; n < std::size(tries); ++n) {
        EXPECT_THAT(refused(channel, tries[n]), testing::AnyOf(command::kInvalidHandle, 700)) << i << ", try " << n;
      }
    }
    EXPECT_TRUE(are_all(seen, kUntouched));
    EXPECT_TRUE(are_all(look(channel, mine, kBytes), std::byte{0}));
    // The same names are its own, of other memory.
    must(channel.allocate({1}, kBytes));
    EXPECT_TRUE(are_all(look(channel, {1}, kBytes), std::byte{0}));
  }
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_TRUE(are_all(look(own, {i}, kBytes), kSecret));
  EXPECT_FALSE(own.failure());
}

TEST_P(CommandHostile, NothingIsReadPastTheEndOfWhatIsOnesOwn) {
  serve({{.name = "trainer"}, {.name = "guest"}});
  Result<Session> victim = begin("trainer"), hostile = begin("guest");
  ASSERT_TRUE(victim && hostile);
  Channel own = open(*victim), channel = open(*hostile);
  // Before and behind what the other gets.
  const Handle before{1}, mine{2}, behind{3};
  for (const Handle handle : {before, mine, behind}) {
    must(own.allocate(handle, kBytes));
    must(own.fill(handle, 0, kBytes, static_cast<std::uint8_t>(kSecret)));
    must(channel.allocate(handle, kBytes));
    must(channel.fill(handle, 0, kBytes, handle == mine ? 0 : static_cast<std::uint8_t>(kSecret)));
  }
  must(channel.load({1}, "vector_add"));
  expect_fine(own);
  expect_fine(channel);
  std::vector<std::byte> seen(2 * kBytes, kUntouched);
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (const std::uint64_t at : {std::uint64_t{kBytes} - 1, std::uint64_t{kBytes}, std::uint64_t{kBytes} + 1,
                                 std::uint64_t{1} << 32, std::uint64_t{1} << 63, kAll - 1, kAll}) {
    for (const std::size_t length : {std::size_t{2}, std::size_t{64}, seen.size()}) {
      refused(channel, [&] { return channel.copy_out(std::span(seen).first(length), mine, at); });
      refused(channel, [&] { return channel.copy_within(mine, 0, before, at, length); });
      refused(channel, [&] { return channel.copy_in(mine, at, std::span(seen).first(length)); });
    }
    for (const std::uint64_t length : {kAll, kAll - at + 1, kAll - at + 2, std::uint64_t{1} << 63}) {
      if (length < 2) continue;
      refused(channel, [&] { return channel.copy_within(mine, 0, behind, at, length); });
      refused(channel, [&] { return channel.fill(mine, at, length, 1); });
    }
    if (at <= kBytes) continue;  // how far a kernel reaches from there is known on the host alone
    refused(channel,
            [&] { return channel.launch({{1}}, pack(Pointer{before, at}, Pointer{before}, Pointer{mine}, 1u)); });
  }
  EXPECT_TRUE(are_all(seen, kUntouched));
  EXPECT_TRUE(are_all(look(channel, mine, kBytes), std::byte{0}));
  for (const Handle handle : {before, mine, behind}) EXPECT_TRUE(are_all(look(own, handle, kBytes), kSecret));
}

// Two tenants take nearly all the memory there is and give it back, in pieces of all sizes, within a session and with
// sessions that end, or lose their context: whatever anybody is given is zeros.
TEST_P(CommandHostile, WhateverIsGivenAgainIsZeros) {
  constexpr std::uint64_t kMemory = 1 << 20;
  device_bytes = kMemory;
  serve({{.name = "trainer", .memory_bytes = kMemory}, {.name = "guest", .memory_bytes = kMemory}});
  std::mt19937 random(5);
  const auto below = [&random](std::uint64_t bound) { return random() % bound; };
  const std::string names[] = {"trainer", "guest"};
  std::size_t given = 0;
  std::uint64_t bytes_given = 0;
  for (int round = 0; round < 6; ++round) {
    Result<Session> session = begin(names[round % 2]);
    ASSERT_TRUE(session) << session.error().to_string();
    std::vector<Channel> channels{open(*session), open(*session)};
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::uint64_t held = 0;
    for (int i = 0; i < 25; ++i) {
      const std::size_t which = below(2);
      Channel &channel = channels[which], &other = channels[1 - which];
      must(channel.fence(must(other.record())));  // what it fills is not released before that
      while (!sizes.empty() && (held > kMemory / 2 || below(3) == 0)) {
        const auto at = std::next(sizes.begin(), static_cast<std::ptrdiff_t>(below(sizes.size())));
        must(channel.release({at->first}));
        held -= at->second;
        sizes.erase(at);
      }
      const std::uint64_t bytes = 1 + below(below(3) == 0 ? kMemory / 3 : 5000);
      const Handle handle = session->new_handle();
      must(channel.allocate(handle, bytes));
      ASSERT_TRUE(are_all(look(channel, handle, bytes), std::byte{0})) << "round " << round << ", allocation " << i;
      must(channel.fill(handle, 0, bytes, static_cast<std::uint8_t>(kSecret)));
      sizes[handle.bits] = bytes;
      held += bytes;
      bytes_given += bytes;
      ++given;
      if (below(2) == 0) continue;  // the next is given while the device is at this one
      for (Channel& each : channels) expect_fine(each);
    }
    if (round % 3 == 2 && !faults_spread()) {  // as it stands
      must(channels[0].load({1}, "fault"));
      must(channels[0].launch({{1}}, {}));
      EXPECT_EQ(channels[0].synchronize(kPatience).code(), Code::kAborted);
    }
    session->close();
    ASSERT_TRUE(comes_true([&] { return stats_of(names[round % 2]).memory_bytes == 0; }));
  }
  EXPECT_EQ(given, 150u);
  EXPECT_GT(bytes_given, 5 * kMemory) << "each byte of it was several's";
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandHostile, testing::ValuesIn(shared_ways()),
                         [](const auto& info) { return info.param.name(); });
INSTANTIATE_TEST_SUITE_P(Cuda, CommandHostile, testing::ValuesIn(shared_cuda_ways()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
