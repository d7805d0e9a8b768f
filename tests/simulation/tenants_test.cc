// Principals with domains of their own: what one may reach by which key, id and capability.
#include <gtest/gtest.h>

#include <algorithm>

#include "datapath/protocol/path_messages.h"
#include "fairlead/log.h"
#include "two_ends.h"

namespace fairlead::simulation {
namespace {

using datapath::Capability;
using datapath::Grant;
using datapath::LookupRequest;
using datapath::OpKind;
using datapath::Publication;
using datapath::RemoteRegionImpl;
using datapath::TransferImpl;

constexpr const char* kKeys =
    "trainer 1111111111111111111111111111111111111111111111111111111111111111\n"
    "store 2222222222222222222222222222222222222222222222222222222222222222\n";

/// A session of "trainer" with an engine that has no principal itself.
class Tenants : public testing::Test {
 protected:
  Tenants() { set_log_level(LogLevel::kOff); }

  static EngineConfig as_trainer() {
    EngineConfig config;
    config.principal = "trainer";
    return config;
  }
  void begin(const Habits& habits) {
    ends_ = std::make_unique<TwoEnds>(1, std::vector{habits}, std::vector{habits}, as_trainer(),
                                      std::vector<datapath::Place>{}, kKeys);
    ASSERT_TRUE(ends_->meet());
    ASSERT_EQ(ends_->session[1]->description().principal, "trainer");
  }
  [[nodiscard]] TwoEnds& ends() { return *ends_; }

  TransferImpl& write_to(std::shared_ptr<const RemoteRegionImpl> remote) {
    const auto before = std::exchange(ends().remote[0], std::move(remote));
    TransferImpl& t = ends().write(0, 0, 100);
    ends().remote[0] = before;
    EXPECT_TRUE(ends().run([&] { return t.finished.load(); }));
    return t;
  }
  /// What the trainer knows of the region, but for its keys.
  std::shared_ptr<RemoteRegionImpl> with_keys(std::vector<RemoteRegionImpl::Key> keys) {
    const RemoteRegionImpl& known = *ends().remote[0];
    auto made = std::make_shared<RemoteRegionImpl>();
    made->name = known.name;
    made->id = known.id;
    made->session = known.session;
    made->size = known.size;
    made->access = known.access;
    made->keys = std::move(keys);
    return made;
  }
  bool untouched() { return std::ranges::count(ends().memory[1], std::byte{0}) == std::ptrdiff_t{TwoEnds::kBytes}; }
  std::shared_ptr<LookupRequest> import(const std::string& text) {
    auto request = ends().session[0]->start_lookup({}, false, text);
    EXPECT_TRUE(ends().run([&] { return request->finished.load(); }));
    return request;
  }

  std::unique_ptr<TwoEnds> ends_;
};

TEST_F(Tenants, AKeyOfAnotherDomainOpensNothing) {
  begin(device());
  std::ranges::fill(ends().memory[0], std::byte{7});
  std::vector<Grant> of_anonymous;
  (void)ends().hosts[1]->regions().seen_by("").find("r", [&](const Publication& p) { of_anonymous = p.grants; });
  ASSERT_EQ(of_anonymous.size(), 1u);
  ASSERT_EQ(ends().remote[0]->keys.size(), 1u);
  EXPECT_NE(ends().remote[0]->keys[0].key, of_anonymous[0].key);
  EXPECT_NE(ends().remote[0]->keys[0].key, 0u);

  const TransferImpl& stolen = write_to(with_keys({{of_anonymous[0].address, of_anonymous[0].key}}));
  EXPECT_EQ(stolen.code, Code::kProtectionError) << stolen.reason;
  EXPECT_EQ(ends().wire.foreign, 1u);
  EXPECT_TRUE(untouched());

  EXPECT_EQ(write_to(ends().remote[0]).code, Code::kOk) << "its own does, over the next path";
  EXPECT_FALSE(untouched());
  EXPECT_EQ(ends().wire.unregistered, 0u);
  EXPECT_TRUE(ends().end());
}

TEST_F(Tenants, WhatHasNoKeyYetGoesByMessage) {
  begin(device());
  std::ranges::fill(ends().memory[0], std::byte{7});
  TransferImpl& sent = write_to(with_keys({}));
  EXPECT_EQ(sent.code, Code::kOk) << sent.reason;
  EXPECT_EQ(ends().session[0]->stats().staged_bytes, 100u);
  EXPECT_EQ(ends().memory[1][99], std::byte{7});
  EXPECT_EQ(write_to(ends().remote[0]).code, Code::kOk);
  EXPECT_EQ(ends().session[0]->stats().staged_bytes, 100u) << "the rest of the path's data goes as ever";
  EXPECT_TRUE(ends().end());
}

// Some with keys and some without, with notifications, in one order; and paths that die under them.
TEST_F(Tenants, BothWaysAtOnce) {
  for (std::uint64_t cut_after = 0; cut_after < 1200; cut_after += 60) {
    begin(device());
    const auto bare = with_keys({});
    const auto keyed = ends().remote[0];
    for (std::uint64_t i = 0; i < 24; ++i) {
      ends().remote[0] = i % 3 == 1 ? bare : keyed;
      ends().write(0, i * 1000, 1000, true);
    }
    ends().pass(microseconds(cut_after), microseconds(5));
    for (int end : {0, 1}) {
      if (FakePath* path = ends().path(end)) path->cut(microseconds(50));
    }
    ASSERT_TRUE(ends().run([&] {
      return std::ranges::all_of(ends().posted, [](const TransferImpl* t) { return t->finished.load(); });
    })) << cut_after;
    for (const TransferImpl* t : ends().posted) EXPECT_EQ(t->code, Code::kOk) << t->reason;
    std::uint64_t notified = 0;
    ends().run([&] {
      Event event;
      while (ends().session[1]->take_event(event)) notified += event.kind == Event::Kind::kNotification ? 1 : 0;
      return notified == 24;
    });
    EXPECT_EQ(notified, 24u);
    EXPECT_EQ(ends().wire.foreign + ends().wire.unregistered, 0u);
    EXPECT_TRUE(ends().end()) << cut_after;
  }
}

// As tcp does it: a write that is refused turns the messages away that come behind it.
TEST_F(Tenants, WhatWentByMessageBehindARefusedWriteIsSaidAgain) {
  Habits habits = device("tcp");
  habits.refusal_ends_path = false;
  begin(habits);
  const auto bare = with_keys({}), wrong = with_keys({{0, 1}});
  const auto keyed = ends().remote[0];
  for (std::uint64_t i = 0; i < 9; ++i) {
    ends().remote[0] = i == 4 ? wrong : i % 2 == 1 ? bare : keyed;
    ends().write(0, i * 1000, 1000);
  }
  ASSERT_TRUE(ends().run(
      [&] { return std::ranges::all_of(ends().posted, [](const TransferImpl* t) { return t->finished.load(); }); }));
  for (std::size_t i = 0; i < ends().posted.size(); ++i) {
    EXPECT_EQ(ends().posted[i]->code, i == 4 ? Code::kProtectionError : Code::kOk) << i << ends().posted[i]->reason;
  }
  EXPECT_TRUE(ends().end());
}

TEST_F(Tenants, AnExportTakesItsCapability) {
  for (const bool one_sided : {true, false}) {
    Habits habits = device();
    habits.writes_arrive = one_sided;
    begin(habits);
    std::ranges::fill(ends().memory[0], std::byte{7});
    datapath::RegionTable& regions = ends().hosts[1]->regions();
    const auto range = regions.add({.bytes = ends().memory[1]});
    ASSERT_TRUE(range);
    const auto region =
        std::make_shared<datapath::RegionImpl>(*range, ends().memory[1], Access::kRemoteReadWrite, nullptr);
    const auto made = regions.export_region(region, ends().memory[1], Access::kRemoteReadWrite, {"trainer"});
    ASSERT_TRUE(made);

    // Its number, by message.
    auto guessed = with_keys({});
    guessed->id = made->region;
    EXPECT_EQ(write_to(guessed).code, Code::kProtectionError);
    // A wrong secret, another's audience.
    Capability wrong = *made;
    wrong.secret[0] = static_cast<char>(wrong.secret[0] ^ 1);
    EXPECT_EQ(import(to_text(wrong))->status.code(), Code::kPermissionDenied);
    const auto for_store = regions.export_region(region, ends().memory[1], Access::kRemoteReadWrite, {"store"});
    ASSERT_TRUE(for_store);
    EXPECT_EQ(import(to_text(*for_store))->status.code(), Code::kPermissionDenied);
    EXPECT_TRUE(untouched());

    const auto imported = import(to_text(*made));
    ASSERT_EQ(imported->regions.size(), 1u) << imported->status.to_string();
    EXPECT_EQ(write_to(imported->regions[0]).code, Code::kOk);
    EXPECT_FALSE(untouched());

    std::ranges::fill(ends().memory[1], std::byte{0});
    ASSERT_TRUE(regions.unexport(*made).ok());
    EXPECT_EQ(write_to(imported->regions[0]).code, Code::kProtectionError);
    EXPECT_EQ(import(to_text(*made))->status.code(), Code::kPermissionDenied);
    EXPECT_TRUE(untouched());
    EXPECT_TRUE(ends().end());
    ASSERT_TRUE(regions.unexport(*for_store).ok());
  }
}

TEST_F(Tenants, AWithdrawnRegionIsReachedByNoKeyOfTheirs) {
  begin(device());
  std::ranges::fill(ends().memory[0], std::byte{7});
  const auto known = with_keys(ends().remote[0]->keys);  // that nobody tells of the withdrawal
  ends().withdraw(1);
  EXPECT_EQ(write_to(known).code, Code::kProtectionError);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(ends().wire.refused, 1u);
  EXPECT_TRUE(ends().end());
}

// A session that goes on over another control connection is the same principal's, with the same domain.
TEST_F(Tenants, AResumedSessionKeepsItsDomain) {
  begin(device());
  ends().line.cut();
  for (const int end : {0, 1}) ends().line.reset(end);
  ASSERT_TRUE(ends().run([&] { return ends().session[0]->stats().resumptions == 1; }));
  for (const int end : {0, 1}) ends().path(end)->cut(microseconds(50));
  EXPECT_EQ(write_to(ends().remote[0]).code, Code::kOk) << "over the next path";
  EXPECT_EQ(ends().session[1]->description().principal, "trainer");
  EXPECT_EQ(ends().wire.foreign + ends().wire.unregistered + ends().wire.refused, 0u);
  EXPECT_TRUE(ends().end());
}

}  // namespace
}  // namespace fairlead::simulation
