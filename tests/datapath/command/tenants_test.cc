#include "datapath/command/tenants.h"

#include <gmock/gmock.h>

#include "datapath/command/metered_executor.h"
#include "fairlead/host_executor.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Sharing;
using fairlead::command::Tenant;
using fairlead::command::TenantStats;
using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(Tenants, EverybodyMayComeWhereNoneIsNamed) {
  Tenants tenants({}, nullptr);
  EXPECT_TRUE(tenants.admit(""));
  EXPECT_TRUE(tenants.admit("trainer"));
  ASSERT_EQ(tenants.stats().size(), 2u);
  EXPECT_EQ(tenants.stats()[1].name, "trainer");
}

TEST(Tenants, WhoIsNotNamedIsRefused) {
  Tenants tenants({{.name = "trainer"}}, nullptr);
  EXPECT_TRUE(tenants.admit("trainer"));
  const Result<Admission> stranger = tenants.admit("stranger");
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(stranger.error().message(), HasSubstr("'stranger' is none of the service's tenants"));
  EXPECT_EQ(tenants.admit("").error().code(), Code::kPermissionDenied);
  EXPECT_EQ(tenants.stats().size(), 1u) << "who was refused leaves nothing";

  Tenants open({{.name = "trainer", .sessions = 9}, {.name = "*", .sessions = 1}}, nullptr);
  const Result<Admission> one = open.admit("stranger");
  EXPECT_TRUE(one);
  EXPECT_EQ(open.admit("stranger").error().code(), Code::kResourceExhausted);
  EXPECT_TRUE(open.admit("another")) << "the terms of * are each one's own";
  EXPECT_EQ(open.admit("").error().code(), Code::kPermissionDenied) << "* showed a key";
}

TEST(Tenants, SessionsAreGivenBack) {
  Tenants tenants({{.name = "trainer", .sessions = 2}}, nullptr);
  std::optional<Admission> first(*tenants.admit("trainer"));
  const Result<Admission> second = tenants.admit("trainer");
  const Result<Admission> third = tenants.admit("trainer");
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(third.error().message(), HasSubstr("2 sessions, its limit"));
  first.reset();
  EXPECT_TRUE(tenants.admit("trainer"));
  EXPECT_EQ(tenants.stats()[0].rejections, 1u);
}

TEST(Tenants, OtherTermsHoldFromNowOn) {
  Tenants tenants({{.name = "trainer", .memory_bytes = 100}, {.name = "leaves"}}, nullptr);
  const Result<Admission> trainer = tenants.admit("trainer");
  ASSERT_TRUE(trainer);
  const auto takes_101 = [&] {
    TenantMeter& meter = *trainer->account().meter;
    return meter.devices[0].reserve_memory(101, meter.most_memory);
  };
  EXPECT_FALSE(takes_101());
  tenants.replace({{.name = "trainer", .memory_bytes = 1000}, {.name = "comes"}});
  EXPECT_TRUE(takes_101());
  EXPECT_FALSE(tenants.admit("leaves"));
  EXPECT_TRUE(tenants.admit("comes"));
}

TEST(Tenants, WhatIsWrongIsNamed) {
  const auto words = [](std::vector<Tenant> all, Sharing sharing = Sharing::kFree) {
    return Tenants::check(all, sharing).message();
  };
  EXPECT_EQ(words({{.name = "a"}, {.name = "*"}}), "");
  EXPECT_THAT(words({{.name = ""}}), HasSubstr("a tenant's name has"));
  EXPECT_THAT(words({{.name = "a b"}}), HasSubstr("a tenant's name has"));
  EXPECT_THAT(words({{.name = "a"}, {.name = "a"}}), HasSubstr("tenant 'a' is there twice"));
  EXPECT_THAT(words({{.name = "a", .channels = 5000}}), HasSubstr("5000 channels"));
  EXPECT_THAT(words({{.name = "a", .credits = 3}}), HasSubstr("3 credits"));
  EXPECT_THAT(words({{.name = "a"}}, Sharing::kFixed), HasSubstr("a share of 0"));
  EXPECT_THAT(words({{.name = "*", .share = 1}}, Sharing::kFixed), HasSubstr("no knowing how many"));
  EXPECT_THAT(words({}, Sharing::kFixed), HasSubstr("fixed shares take tenants"));
  EXPECT_THAT(words({{.name = "a", .share = 0.7}, {.name = "b", .share = 0.4}}, Sharing::kFixed),
              HasSubstr("more than 1"));
  std::vector<Tenant> tenths;
  for (int i = 0; i < 10; ++i) tenths.push_back({.name = "t" + std::to_string(i), .share = 0.1});
  EXPECT_EQ(words(tenths, Sharing::kFixed), "") << "however tenths add up";
}

TEST(MeteredExecutor, MemoryIsTheTenantsOverAllItsSessions) {
  Tenants tenants({{.name = "trainer", .memory_bytes = 1000}}, nullptr);
  const auto make = [&, factory = fairlead::command::host_executors({})] {
    return std::make_unique<MeteredExecutor>(*factory(fairlead::Peer()), tenants.admit("trainer")->account().meter,
                                             MeteredExecutor::Where{});
  };
  std::unique_ptr<MeteredExecutor> one = make(), other = make();
  EXPECT_EQ(one->limits().memory_bytes, 1000u);
  EXPECT_TRUE(one->allocate({1}, 600).ok());
  const auto refused = other->allocate({1}, 600);
  EXPECT_EQ(refused.result, fairlead::command::kOutOfMemory);
  EXPECT_THAT(refused.text, HasSubstr("600 bytes beside 600 of 1000 that the tenant may have"));
  EXPECT_TRUE(other->allocate({1}, 400).ok());
  EXPECT_FALSE(one->allocate({2}, std::uint64_t{1} << 40).ok());
  EXPECT_FALSE(one->allocate({2}, ~std::uint64_t{0}).ok()) << "sums do not wrap";
  // What the executor refuses is not paid for.
  EXPECT_TRUE(other->release({1}).ok());
  EXPECT_FALSE(other->release({1}).ok());
  EXPECT_FALSE(one->allocate({1}, 100).ok()) << "a handle that is in use";
  EXPECT_EQ(tenants.stats()[0].memory_bytes, 600u);
  one.reset();
  EXPECT_EQ(tenants.stats()[0].memory_bytes, 0u);
  EXPECT_EQ(tenants.stats()[0].rejections, 3u);
}

TEST(TenantMeter, WhatAProcessHadIsWhatItsSlotSays) {
  TenantAccount account;
  constexpr std::uint64_t kMost = 1000;
  DeviceMeter& meter = account.meter->devices[1];
  const std::size_t one = *account.take_slot(), other = *account.take_slot();
  EXPECT_NE(one, other);
  EXPECT_TRUE(meter.reserve_memory(300, kMost));
  EXPECT_TRUE(meter.reserve_memory(400, kMost, one));
  EXPECT_TRUE(meter.reserve_memory(300, kMost, other));
  EXPECT_FALSE(meter.reserve_memory(1, kMost, other));
  EXPECT_EQ(meter.memory(), 1000u);
  account.end_slot(one);  // wherever it was
  EXPECT_EQ(meter.memory(), 600u);
  EXPECT_EQ(account.take_slot(), one);
  EXPECT_TRUE(meter.reserve_memory(400, kMost, one));
  meter.give_back(300);
  EXPECT_EQ(meter.memory(), 700u);
  for (std::size_t i = 3; i < DeviceMeter::kSlots; ++i) EXPECT_TRUE(account.take_slot());
  EXPECT_FALSE(account.take_slot());
}

TEST(RateLimit, DrawsIntoDebtAndWaits) {
  const RateLimit::Clock::time_point begin{std::chrono::seconds(1)};
  RateLimit limit;
  EXPECT_FALSE(limit.is_limited());
  limit.set(1'000'000, begin);
  EXPECT_TRUE(limit.is_limited());
  EXPECT_TRUE(limit.take(1'050'000, begin)) << "a piece larger than the bucket goes, on credit";
  EXPECT_FALSE(limit.take(1, begin + milliseconds(999)));
  EXPECT_TRUE(limit.take(1, begin + milliseconds(1001)));
  // Of what is idle only so much is gathered.
  const auto later = begin + std::chrono::hours(1);
  std::uint64_t took = 0;
  while (limit.take(1000, later)) took += 1000;
  EXPECT_EQ(took, 50'000u);
  limit.set(0, later);
  EXPECT_FALSE(limit.is_limited());
}

// As often as tenants are read again.
TEST(RateLimit, IsNotForgivenWhatItOwesWhereItIsSetAgain) {
  const RateLimit::Clock::time_point begin{std::chrono::seconds(1)};
  RateLimit limit;
  limit.set(1'000'000, begin);
  EXPECT_TRUE(limit.take(1'050'000, begin));
  for (int i = 0; i < 10; ++i) limit.set(1'000'000, begin + milliseconds(500));
  EXPECT_FALSE(limit.take(1, begin + milliseconds(999)));
  EXPECT_TRUE(limit.take(1, begin + milliseconds(1001)));
  // What is owed is paid at the new rate, and of what was gathered as much is left as that allows.
  EXPECT_TRUE(limit.take(1'000'000, begin + milliseconds(1002)));
  limit.set(100'000'000, begin + milliseconds(1002));
  EXPECT_FALSE(limit.take(1, begin + milliseconds(1002)));
  EXPECT_TRUE(limit.take(1, begin + milliseconds(1013)));
  const auto later = begin + std::chrono::hours(1);
  limit.set(1000, later);
  EXPECT_EQ(limit.level(later), 50);
  limit.set(0, later);
  limit.set(1'000'000, later);
  EXPECT_EQ(limit.level(later), 50'000);
}

}  // namespace
}  // namespace fairlead::datapath::command
