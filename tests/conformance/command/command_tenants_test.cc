// Tenants of a service over every way across: who may come, what each may have, and that none harms another.
#include "tests/conformance/command/command_tenants.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>

#include "fairlead/log.h"

namespace fairlead {
namespace {

using command::Channel;
using command::Scope;
using command::Session;
using command::Sharing;
using command::Tenant;
using command::TenantStats;
using testing::HasSubstr;

TEST_P(CommandTenants, OnlyThoseThatAreNamedComeAndFewSessionsOfEach) {
  serve({{.name = "trainer", .sessions = 1}, {.name = "store", .channels = 2, .credits = 64}});
  Result<Session> trainer = begin("trainer");
  ASSERT_TRUE(trainer) << trainer.error().to_string();
  expect_works(*trainer);
  const Result<Session> again = begin("trainer");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(again.error().message(), HasSubstr("tenant 'trainer' has 1 sessions, its limit"));
  const Result<Session> guest = begin("guest");
  ASSERT_FALSE(guest);
  EXPECT_EQ(guest.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(guest.error().message(), HasSubstr("'guest' is none of the service's tenants"));
  Result<Session> store = begin("store");
  ASSERT_TRUE(store) << store.error().to_string();
  EXPECT_EQ(store->limits().channels, 2u);
  EXPECT_EQ(store->limits().credits, 64u);
  expect_works(*trainer);
  // What one leaves another session of the same tenant takes.
  trainer->close();
  ASSERT_TRUE(comes_true([&] { return stats_of("trainer").sessions == 0; }));
  Result<Session> later = begin("trainer");
  ASSERT_TRUE(later) << later.error().to_string();
  EXPECT_EQ(stats_of("trainer").rejections, 1u);
}

TEST_P(CommandTenants, MemoryIsAPartOfTheDevice) {
  serve({{.name = "trainer", .memory_bytes = 1 << 20}, {.name = "store", .memory_bytes = 1 << 20}});
  Result<Session> one = begin("trainer"), other = begin("trainer"), store = begin("store");
  ASSERT_TRUE(one && other && store);
  EXPECT_EQ(one->limits().memory_bytes, std::uint64_t{1} << 20);
  Channel first = open(*one), second = open(*other);
  must(first.allocate({1}, 700 << 10));
  expect_fine(first);
  const std::uint64_t refused = must(second.allocate({1}, 700 << 10));
  EXPECT_EQ(second.synchronize(kPatience).code(), Code::kAborted);
  ASSERT_TRUE(second.failure());
  EXPECT_EQ(second.failure()->sequence, refused);
  EXPECT_EQ(second.failure()->result, command::kOutOfMemory);
  EXPECT_THAT(second.failure()->text, HasSubstr("that the tenant may have"));
  Channel untouched = open(*store);
  must(untouched.allocate({1}, 1 << 20));
  expect_fine(untouched);
  EXPECT_EQ(stats_of("trainer").memory_bytes, std::uint64_t{700} << 10);
  one->close();
  ASSERT_TRUE(comes_true([&] { return stats_of("trainer").memory_bytes == 0; }));
  ASSERT_TRUE(second.recover().ok());
  must(second.allocate({1}, 700 << 10));
  expect_fine(second);
  EXPECT_EQ(stats_of("trainer").rejections, 1u);
  EXPECT_TRUE(comes_true([&] { return stats_of("trainer").failures[static_cast<std::size_t>(Scope::kCommand)] == 1; }));
}

TEST_P(CommandTenants, EveryPolicyRunsWhatAllAsk) {
  for (const Sharing sharing : {Sharing::kBestEffort, Sharing::kEqual, Sharing::kFixed}) {
    serve({{.name = "trainer", .share = 0.5}, {.name = "store", .share = 0.3}, {.name = "guest", .share = 0.2}},
          sharing);
    std::vector<Session> sessions;
    std::vector<Channel> channels;
    for (const char* const name : {"trainer", "store", "guest", "trainer"}) {
      Result<Session> made = begin(name);
      ASSERT_TRUE(made) << made.error().to_string();
      sessions.push_back(*made);
      channels.push_back(open(sessions.back()));
      must(channels.back().load({1}, "nothing"));
    }
    constexpr std::uint64_t kCommands = 2000;
    for (std::uint64_t i = 0; i < kCommands; ++i) {
      for (Channel& channel : channels) must(channel.launch({{1}}, {}));
    }
    for (Channel& channel : channels) expect_fine(channel);
    // A reply leaves before what it tells of is counted.
    EXPECT_TRUE(comes_true([&] { return stats_of("store").commands == kCommands + 1; }));
    EXPECT_TRUE(comes_true([&] { return stats_of("trainer").commands == 2 * (kCommands + 1); })) << "of both sessions";
    EXPECT_TRUE(comes_true([&] { return stats_of("guest").waiting == 0; }));
    EXPECT_EQ(service->stats().turn_overruns, 0u);
    sessions.clear();
    channels.clear();
    TearDown();
  }
}

TEST_P(CommandTenants, OneThatHangsHoldsNobodyElse) {
  serve({{.name = "trainer"}, {.name = "store"}}, Sharing::kEqual, std::chrono::milliseconds(10));
  Result<Session> trainer = begin("trainer"), store = begin("store");
  ASSERT_TRUE(trainer && store);
  Channel hung = open(*trainer);
  must(hung.load({1}, "gate"));
  must(hung.launch({{1}}, {}));
  hung.flush();
  ASSERT_TRUE(comes_true([&] { return kernels.signals().entered.load() == 1; }));
  expect_works(*store);
  expect_works(*store);
  EXPECT_GE(service->stats().turn_overruns, 1u);
  kernels.signals().open.store(true);
  expect_fine(hung);
}

TEST_P(CommandTenants, AFailureIsItsTenantsAlone) {
  serve({{.name = "trainer"}, {.name = "store"}}, Sharing::kEqual);
  Result<Session> trainer = begin("trainer"), store = begin("store");
  ASSERT_TRUE(trainer && store);
  Channel faulty = open(*trainer);
  must(faulty.load({1}, "fault"));
  must(faulty.launch({{1}}, {}));
  EXPECT_EQ(faulty.synchronize(kPatience).code(), Code::kAborted);
  EXPECT_EQ(faulty.failure()->scope, Scope::kContext);
  expect_works(*store);
  EXPECT_TRUE(comes_true([&] { return stats_of("trainer").failures[static_cast<std::size_t>(Scope::kContext)] == 1; }));
  EXPECT_EQ(stats_of("store").failures[static_cast<std::size_t>(Scope::kContext)], 0u);
}

TEST_P(CommandTenants, BandwidthHoldsCopiesAndNothingElse) {
  // The first piece goes on credit, the second not for a minute.
  serve({{.name = "trainer", .bytes_per_second = 1 << 10}, {.name = "store"}});
  Result<Session> trainer = begin("trainer"), store = begin("store");
  ASSERT_TRUE(trainer && store);
  Channel copies = open(*trainer), commands = open(*trainer);
  const std::vector<std::byte> bytes(60 << 10, std::byte{7});
  ASSERT_LE(bytes.size(), trainer->limits().payload_bytes);
  must(copies.allocate({1}, bytes.size()));
  must(copies.copy_in({1}, 0, bytes));
  const std::uint64_t held = must(copies.copy_in({1}, 0, bytes));
  ASSERT_TRUE(copies.wait(held - 1, command::Stage::kComplete, kPatience).ok());
  must(commands.allocate({2}, 64));
  must(commands.fill({2}, 0, 64, 1));
  expect_fine(commands);
  expect_works(*store);
  EXPECT_EQ(copies.reached(command::Stage::kExecuted), held - 1);
  ASSERT_TRUE(service->set_tenants({{.name = "trainer"}, {.name = "store"}}).ok());
  expect_fine(copies);
  EXPECT_EQ(stats_of("trainer").bytes_in, 2 * bytes.size());
  EXPECT_EQ(stats_of("trainer").bytes_out, 0u);
  EXPECT_EQ(stats_of("store").bytes_out, 64u);
}

TEST_P(CommandTenants, DrainingTakesNobodyNew) {
  serve({{.name = "trainer"}});
  Result<Session> trainer = begin("trainer");
  ASSERT_TRUE(trainer);
  service->drain();
  const Result<Session> late = begin("trainer");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kUnavailable);
  EXPECT_THAT(late.error().message(), HasSubstr("takes no new sessions"));
  expect_works(*trainer);
}

TEST_P(CommandTenants, ATenantThatNobodyCanBeIsNamed) {
  static std::atomic<int> warnings{0};
  warnings = 0;
  set_log_sink([](LogLevel, std::string_view line) {
    warnings += line.find("tenant 'nobody' has no line in the keys file") != line.npos ? 1 : 0;
  });
  serve({{.name = "trainer"}, {.name = "nobody"}, {.name = "*"}});
  EXPECT_EQ(warnings, 1);
  ASSERT_TRUE(service->set_tenants({{.name = "nobody"}, {.name = "store"}}).ok());
  EXPECT_EQ(warnings, 2);
  set_log_sink(nullptr);
}

TEST_P(CommandTenants, TermsMayChange) {
  serve({{.name = "trainer", .memory_bytes = 100}});
  Result<Session> trainer = begin("trainer");
  ASSERT_TRUE(trainer);
  EXPECT_EQ(service->set_tenants({{.name = "no name"}}).code(), Code::kInvalidArgument);
  ASSERT_TRUE(service->set_tenants({{.name = "trainer", .memory_bytes = 1000}, {.name = "store"}}).ok());
  Channel channel = open(*trainer);
  must(channel.allocate({1}, 1000));
  expect_fine(channel);
  Result<Session> store = begin("store");
  ASSERT_TRUE(store) << store.error().to_string();
  expect_works(*store);
}

INSTANTIATE_TEST_SUITE_P(Ways, CommandTenants, testing::ValuesIn(shared_ways()),
                         [](const testing::TestParamInfo<CommandWay>& info) { return info.param.name(); });

}  // namespace
}  // namespace fairlead
