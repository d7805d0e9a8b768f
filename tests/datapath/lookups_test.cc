#include "datapath/session/lookups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace fairlead::datapath {
namespace {

constexpr std::uint64_t kSession = 7;

class LookupsTest : public testing::Test {
 protected:
  std::shared_ptr<LookupRequest> ask(const std::string& name, bool prefix = false) {
    auto request = std::make_shared<LookupRequest>();
    request->name = name;
    request->prefix = prefix;
    lookups.add(request);
    return request;
  }
  // The peer's page of regions of these names, as an answer to the question asked last.
  static control::Regions page(std::uint64_t number, const std::vector<std::string>& names, bool more = false) {
    control::Regions regions;
    regions.request = number;
    regions.more = more;
    std::uint64_t id = 1;
    for (const std::string& name : names) {
      control::Region& region = regions.regions.emplace_back();
      region.name = name;
      region.id = id++;
      region.size = 64;
      region.access = static_cast<std::uint32_t>(Access::kRemoteRead);
    }
    return regions;
  }
  [[nodiscard]] const control::Lookup& question(std::size_t at) const { return std::get<control::Lookup>(sent.at(at)); }
  [[nodiscard]] std::uint64_t number_of_last() const { return question(sent.size() - 1).request; }

  std::vector<control::Frame> sent;
  Lookups lookups{[this](const control::Frame& frame) { sent.push_back(frame); }};
};

TEST_F(LookupsTest, NothingIsAskedBeforeTheHello) {
  const auto request = ask("weights");
  EXPECT_TRUE(sent.empty());
  lookups.open(kSession);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(question(0).name, "weights");
  EXPECT_FALSE(question(0).prefix);
  lookups.on_regions(page(number_of_last(), {"weights"}), "peer");
  EXPECT_TRUE(request->finished.load());
  EXPECT_TRUE(request->status.ok()) << request->status.message();
  ASSERT_EQ(request->regions.size(), 1U);
  EXPECT_EQ(request->regions[0]->name, "weights");
  EXPECT_EQ(request->regions[0]->session, kSession);
}

TEST_F(LookupsTest, SoManyAreUnderWayAndTheRestWait) {
  lookups.open(kSession);
  std::vector<std::shared_ptr<LookupRequest>> requests;
  for (std::size_t i = 0; i < Lookups::kMost + 3; ++i) requests.push_back(ask(fmt::format("r{}", i)));
  EXPECT_EQ(sent.size(), Lookups::kMost);
  lookups.on_regions(page(question(0).request, {"r0"}), "peer");
  EXPECT_EQ(sent.size(), Lookups::kMost + 1);
  EXPECT_TRUE(requests[0]->finished.load());
  EXPECT_FALSE(requests[1]->finished.load());
}

// A peer that answers none, and an application that asks again whenever its patience has ended.
TEST_F(LookupsTest, WhatNobodyWaitsForIsNotKeptWhereNothingIsAnswered) {
  lookups.open(kSession);
  std::vector<std::weak_ptr<LookupRequest>> given_up;
  for (std::size_t i = 0; i < 5 * Lookups::kMost; ++i) {
    const auto request = ask("x");
    request->abandoned = true;
    given_up.push_back(request);
  }
  const auto waits = ask("y");
  EXPECT_EQ(sent.size(), Lookups::kMost);
  EXPECT_EQ(std::ranges::count_if(given_up, [](const auto& each) { return !each.expired(); }),
            static_cast<std::ptrdiff_t>(Lookups::kMost))
      << "those that were asked, whose answers may come";
}

TEST_F(LookupsTest, OneThatNobodyWaitsForIsNotAsked) {
  const auto first = ask("a");
  ask("b");
  first->abandoned.store(true);
  lookups.open(kSession);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(question(0).name, "b");
}

TEST_F(LookupsTest, AListingGoesOnWhereItsLastPageEnded) {
  lookups.open(kSession);
  const auto request = ask("layer", true);
  lookups.on_regions(page(number_of_last(), {"layer.0", "layer.1"}, true), "peer");
  EXPECT_FALSE(request->finished.load());
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(question(1).after, "layer.1");
  EXPECT_TRUE(question(1).prefix);
  lookups.on_regions(page(number_of_last(), {"layer.2"}), "peer");
  EXPECT_TRUE(request->finished.load());
  EXPECT_TRUE(request->status.ok());
  EXPECT_EQ(request->regions.size(), 3U);
}

TEST_F(LookupsTest, AListingThatDoesNotAscendFails) {
  lookups.open(kSession);
  const auto request = ask("", true);
  lookups.on_regions(page(number_of_last(), {"b", "b"}, true), "liar");
  EXPECT_TRUE(request->finished.load());
  EXPECT_EQ(request->status.code(), Code::kDataLoss);
  EXPECT_NE(request->status.message().find("liar listed 'b' out of order"), std::string::npos);
  EXPECT_EQ(sent.size(), 1U) << "it is not asked to go on";
}

// Else such a peer would be asked for ever, as often as it answers.
TEST_F(LookupsTest, APageThatPromisesMoreAndHasNothingFails) {
  lookups.open(kSession);
  const auto request = ask("layer", true);
  lookups.on_regions(page(number_of_last(), {"layer.0"}, true), "liar");
  ASSERT_EQ(sent.size(), 2U);
  lookups.on_regions(page(number_of_last(), {}, true), "liar");
  EXPECT_TRUE(request->finished.load());
  EXPECT_EQ(request->status.code(), Code::kDataLoss);
  EXPECT_EQ(sent.size(), 2U) << "it is not asked to go on";
}

TEST_F(LookupsTest, ARegionThatIsDescribedBadlyFailsTheQuestion) {
  lookups.open(kSession);
  const auto request = ask("w");
  control::Regions regions = page(number_of_last(), {"w"});
  regions.regions[0].access = 0xffff;
  lookups.on_regions(regions, "peer");
  EXPECT_TRUE(request->finished.load());
  EXPECT_EQ(request->status.code(), Code::kDataLoss) << request->status.message();
}

TEST_F(LookupsTest, ARefusalIsToldInThePeersWords) {
  lookups.open(kSession);
  const auto request = ask("w");
  control::Regions regions;
  regions.request = number_of_last();
  regions.code = static_cast<std::uint32_t>(Code::kNotFound);
  regions.reason.assign(5000, 'x');
  lookups.on_regions(regions, "peer");
  EXPECT_EQ(request->status.code(), Code::kNotFound);
  EXPECT_LT(request->status.message().size(), 1100U);
}

TEST_F(LookupsTest, AnswersThatNobodyAskedForAreDropped) {
  lookups.open(kSession);
  const auto request = ask("w");
  lookups.on_regions(page(number_of_last() + 1, {"w"}), "peer");
  EXPECT_FALSE(request->finished.load());
  lookups.on_regions(page(number_of_last(), {"w"}), "peer");
  lookups.on_regions(page(number_of_last(), {"x"}), "peer");
  EXPECT_EQ(request->regions.size(), 1U);
}

TEST_F(LookupsTest, AllEndWithTheSession) {
  lookups.open(kSession);
  std::vector<std::shared_ptr<LookupRequest>> requests;
  for (std::size_t i = 0; i < Lookups::kMost + 2; ++i) requests.push_back(ask("r"));
  lookups.end({Code::kPeerDied, "gone"});
  for (const auto& request : requests) {
    EXPECT_TRUE(request->finished.load());
    EXPECT_EQ(request->status.code(), Code::kPeerDied);
  }
  EXPECT_EQ(sent.size(), Lookups::kMost);
}

TEST_F(LookupsTest, WhatThePeerWithdrewIsGone) {
  lookups.open(kSession);
  const auto once = ask("a"), list = ask("", true);
  lookups.on_regions(page(question(0).request, {"a"}), "peer");
  lookups.on_regions(page(question(1).request, {"a", "b"}), "peer");
  lookups.on_withdrawn(1);
  lookups.on_withdrawn(99);  // nobody was told of it
  EXPECT_TRUE(once->regions[0]->is_gone());
  EXPECT_TRUE(list->regions[0]->is_gone()) << "each of what was learned of it";
  EXPECT_FALSE(list->regions[1]->is_gone());
  EXPECT_EQ(gone_because("peer", *once->regions[0]), "peer withdrew region 'a'; look it up again");
}

TEST_F(LookupsTest, ThePeerIsToldOnceOfWhatItKnows) {
  const auto table = std::make_shared<RegionTable>();
  std::vector<std::byte> bytes(64);
  const auto range = table->add({.bytes = bytes, .access = Access::kRemoteRead});
  ASSERT_TRUE(range);
  std::vector<std::uint64_t> ids;
  for (const char* name : {"known", "unknown"}) {
    const auto region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
    ASSERT_TRUE(table->publish(name, region, bytes, Access::kRemoteRead, std::nullopt).ok());
  }
  lookups.answer({.request = 1, .name = "known", .prefix = false, .after = {}}, table->seen_by(""));
  lookups.answer({.request = 2, .name = "known", .prefix = true, .after = {}}, table->seen_by(""));
  ASSERT_EQ(sent.size(), 2U);
  for (const char* name : {"known", "unknown"}) {
    const Result<std::uint64_t> id = table->unpublish(name);
    ASSERT_TRUE(id);
    ids.push_back(*id);
    lookups.withdraw(*id);
    lookups.withdraw(*id);
  }
  ASSERT_EQ(sent.size(), 3U) << "of the one, and once";
  EXPECT_EQ(std::get<control::Withdrawn>(sent[2]).id, ids[0]);
}

/// A table of so many regions "hidden..." that are for somebody else, and one for all, the last by its name.
std::shared_ptr<RegionTable> table_of_hidden(std::span<std::byte> bytes, std::size_t hidden) {
  auto table = std::make_shared<RegionTable>();
  const auto range = table->add({.bytes = bytes, .access = Access::kRemoteRead});
  EXPECT_TRUE(range);
  const auto region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
  for (std::size_t i = 0; i < hidden; ++i) {
    const std::string name = fmt::format("hidden{:06}", i);
    EXPECT_TRUE(table->publish(name, region, bytes, Access::kRemoteRead, std::nullopt, {"owner"}).ok());
  }
  EXPECT_TRUE(table->publish("hidden_not", region, bytes, Access::kRemoteRead, std::nullopt).ok());
  return table;
}

/// What is published keeps its table.
void unpublish_all(RegionTable& table, std::size_t hidden) {
  for (std::size_t i = 0; i < hidden; ++i) EXPECT_TRUE(table.unpublish(fmt::format("hidden{:06}", i)));
  EXPECT_TRUE(table.unpublish("hidden_not"));
}

// Or a few bytes would keep a lane for as long as there are regions, time and again.
TEST_F(LookupsTest, ATurnGoesThroughABoundedNumberOfNames) {
  std::vector<std::byte> bytes(64);
  const auto table = table_of_hidden(bytes, 3 * Lookups::kTurnVisits + 5);
  const auto view = table->seen_by("");
  lookups.answer({.request = 1, .name = "hidden", .prefix = true, .after = {}}, view);
  std::size_t turns = 1;
  for (; lookups.is_listing() && turns < 10; ++turns) {
    EXPECT_TRUE(sent.empty());
    lookups.advance(view);
  }
  EXPECT_EQ(turns, 4u);
  ASSERT_EQ(sent.size(), 1u);
  const auto& page = std::get<control::Regions>(sent[0]);
  EXPECT_EQ(page.request, 1u);
  ASSERT_EQ(page.regions.size(), 1u);
  EXPECT_EQ(page.regions[0].name, "hidden_not");
  EXPECT_FALSE(page.more);
  // What is left of a turn is for the next question.
  sent.clear();
  lookups.answer({.request = 2, .name = "hidden", .prefix = true, .after = {}}, view);
  EXPECT_TRUE(lookups.is_listing());
  lookups.end({Code::kPeerDied, "gone"});
  EXPECT_FALSE(lookups.is_listing());
  EXPECT_TRUE(sent.empty());
  unpublish_all(*table, 3 * Lookups::kTurnVisits + 5);
}

TEST_F(LookupsTest, WhatIsWithdrawnWhileItIsListedIsNotTold) {
  std::vector<std::byte> bytes(64);
  const auto table = table_of_hidden(bytes, Lookups::kTurnVisits);
  const auto range = table->add({.bytes = bytes, .access = Access::kRemoteRead});
  const auto region = std::make_shared<RegionImpl>(*range, bytes, Access::kRemoteRead, nullptr);
  ASSERT_TRUE(table->publish("a", region, bytes, Access::kRemoteRead, std::nullopt).ok());
  lookups.answer({.request = 1, .name = "", .prefix = true, .after = {}}, table->seen_by(""));
  ASSERT_TRUE(lookups.is_listing());
  lookups.withdraw(*table->unpublish("a"));
  lookups.advance(table->seen_by(""));
  ASSERT_EQ(sent.size(), 2u);
  const auto& page = std::get<control::Regions>(sent[1]);
  ASSERT_EQ(page.regions.size(), 1u);
  EXPECT_EQ(page.regions[0].name, "hidden_not");
  unpublish_all(*table, Lookups::kTurnVisits);
}

// A region costs the peer a few bytes.
TEST_F(LookupsTest, AListingIsBoundedByTheMemoryItTakes) {
  lookups.open(kSession);
  const auto list = ask("", true);
  lookups.on_regions(page(number_of_last(), {"r"}), "peer");
  EXPECT_GE(list->bytes, sizeof(RemoteRegionImpl) + sizeof(std::weak_ptr<RemoteRegionImpl>) + 64);
}

TEST_F(LookupsTest, NamesWhatIsWrongWithAQuestion) {
  const auto table = std::make_shared<RegionTable>();
  const auto told = [&](const control::Lookup& lookup) {
    lookups.answer(lookup, table->seen_by(""));
    return std::get<control::Regions>(sent.back());
  };
  control::Lookup lookup;
  lookup.request = 3;
  lookup.name.assign(kMaxRegionName + 1, 'x');
  EXPECT_EQ(told(lookup).code, static_cast<std::uint32_t>(Code::kInvalidArgument));
  lookup.name = "absent";
  EXPECT_EQ(told(lookup).request, 3U);
  EXPECT_EQ(told(lookup).code, static_cast<std::uint32_t>(Code::kNotFound));
  lookup.prefix = true;
  EXPECT_TRUE(told(lookup).regions.empty());
  EXPECT_EQ(told(lookup).code, 0U);
}

}  // namespace
}  // namespace fairlead::datapath
