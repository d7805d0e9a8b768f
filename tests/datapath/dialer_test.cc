#include "datapath/session/dialer.h"

#include <gtest/gtest.h>

#include "datapath/session/places.h"

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Which = std::optional<std::size_t>;

const Clock::time_point kStart{seconds(1000)};
constexpr Clock::duration kInstant{1};

std::vector<Place> at_port(const std::vector<std::string>& addresses, std::uint16_t port = 7400) {
  std::vector<Place> places;
  for (const std::string& address : addresses) places.push_back({address, port});
  return places;
}

class DialerTest : public testing::Test {
 protected:
  void begin(const std::vector<std::string>& addresses, Clock::duration time = seconds(9)) {
    dialer.begin(at_port(addresses), kStart, kStart + time);
  }
  Dialer dialer;
};

TEST_F(DialerTest, OneThatFailsMakesRoomForTheNextAtOnce) {
  begin({"2001:db8::1", "10.0.0.1", "10.0.0.2"});
  ASSERT_EQ(dialer.next(kStart), Which(0));
  EXPECT_EQ(dialer.next(kStart), std::nullopt);
  dialer.failed(0, {Code::kUnavailable, "Network is unreachable"});
  ASSERT_EQ(dialer.next(kStart), Which(1));
  dialer.failed(1, {Code::kNotFound, "Connection refused"});
  ASSERT_EQ(dialer.next(kStart), Which(2));
  EXPECT_FALSE(dialer.is_over());
  dialer.failed(2, {Code::kResourceExhausted, "no descriptors"});
  EXPECT_EQ(dialer.next(kStart), std::nullopt);
  EXPECT_TRUE(dialer.is_over());
  EXPECT_EQ(dialer.failure().code(), Code::kResourceExhausted);
  EXPECT_EQ(dialer.failure().message(),
            "2001:db8::1: Network is unreachable; 10.0.0.1: Connection refused; 10.0.0.2: no descriptors");
}

TEST_F(DialerTest, ASingleAddressNeedsNoName) {
  begin({"10.0.0.1"});
  ASSERT_EQ(dialer.next(kStart), Which(0));
  dialer.failed(0, {Code::kNotFound, "Connection refused"});
  EXPECT_EQ(dialer.failure().message(), "Connection refused");
  EXPECT_EQ(dialer.failure().code(), Code::kNotFound);
}

TEST_F(DialerTest, PlacesOfSeveralPortsAreNamedWithThem) {
  dialer.begin({{"10.0.0.1", 1}, {"10.0.0.1", 2}}, kStart, kStart + seconds(1));
  for (std::size_t i : {0U, 1U}) {
    ASSERT_EQ(dialer.next(kStart), Which(i));
    dialer.failed(i, {Code::kNotFound, "refused"});
  }
  EXPECT_EQ(dialer.failure().message(), "10.0.0.1:1: refused; 10.0.0.1:2: refused");
}

TEST_F(DialerTest, EachHasAHeadStartBeforeTheNext) {
  begin({"a", "b", "c"});
  ASSERT_EQ(dialer.next(kStart), Which(0));
  EXPECT_EQ(dialer.next(kStart + Dialer::kHeadStart - kInstant), std::nullopt);
  ASSERT_EQ(dialer.next(kStart + Dialer::kHeadStart), Which(1));
  EXPECT_EQ(dialer.next(kStart + Dialer::kHeadStart), std::nullopt);
  dialer.failed(1, {Code::kUnavailable, "no route"});
  EXPECT_EQ(dialer.next(kStart + Dialer::kHeadStart), std::nullopt) << "the first still is under way";
  ASSERT_EQ(dialer.next(kStart + 2 * Dialer::kHeadStart), Which(2));
  EXPECT_EQ(dialer.next(kStart + seconds(9)), std::nullopt);
}

TEST_F(DialerTest, ManyForLittleTimeHaveLess) {
  begin({"a", "b", "c", "d"}, milliseconds(200));
  ASSERT_EQ(dialer.next(kStart), Which(0));
  EXPECT_EQ(dialer.next(kStart + milliseconds(50) - kInstant), std::nullopt);
  EXPECT_EQ(dialer.next(kStart + milliseconds(50)), Which(1));
}

TEST_F(DialerTest, WhereTheFirstToAnswerIsOfNoUseTheOthersAreDialedAgain) {
  begin({"a", "b"});
  ASSERT_EQ(dialer.next(kStart), Which(0));
  ASSERT_EQ(dialer.next(kStart + Dialer::kHeadStart), Which(1));
  dialer.answered(1);
  EXPECT_TRUE(dialer.has_other(1));
  EXPECT_EQ(dialer.greets_until(kStart + seconds(1)), kStart + seconds(5)) << "another waits for its turn";
  dialer.failed(1, {Code::kUnavailable, "not an engine"});
  EXPECT_FALSE(dialer.is_over());
  ASSERT_EQ(dialer.next(kStart + seconds(1)), Which(0));
  dialer.answered(0);
  EXPECT_FALSE(dialer.has_other(0));
  EXPECT_EQ(dialer.greets_until(kStart + seconds(1)), kStart + seconds(9)) << "there is nobody to make room for";
}

TEST_F(DialerTest, NobodyListensWhereAllSaySo) {
  begin({"a", "b"});
  for (std::size_t i : {0U, 1U}) {
    ASSERT_EQ(dialer.next(kStart), Which(i));
    dialer.failed(i, i == 0 ? Status(Code::kUnavailable, "no route") : Status(Code::kNotFound, "refused"));
  }
  EXPECT_EQ(dialer.failure().code(), Code::kUnavailable) << "the peer may be at the first";
}

// ---- places

using Addresses = std::vector<std::string>;

/// Two named places, the first with two addresses.
Places two_named() {
  Places places;
  places.set({{"10.0.0.1", 7471, 0}, {"10.0.0.2", 7471, 0}, {"10.1.0.1", 7472, 1}});
  return places;
}

TEST(Places, AreWrittenAsTheyAreGiven) {
  EXPECT_EQ(to_string(Place{"10.0.0.1", 7471}), "10.0.0.1:7471");
  EXPECT_EQ(to_string(Place{"2001:db8::1", 7471}), "[2001:db8::1]:7471");
}

TEST(Places, WhatComesTwiceCountsOnce) {
  Places places;
  places.set({{"10.0.0.1", 1, 0}, {"10.0.0.1", 2, 1}, {"10.0.0.1", 1, 2}});
  EXPECT_EQ(places.all().size(), 2U) << "another port is another place";
  EXPECT_TRUE(places.several());
  std::vector<Place> many;
  for (std::uint16_t port = 1; port <= 100; ++port) many.push_back({"10.0.0.1", port, port});
  places.set(many);
  EXPECT_EQ(places.all().size(), Places::kMost);
}

TEST(Places, OneNameWithSeveralAddressesIsLookedForWhereItWas) {
  Places places;
  places.set({{"10.0.0.1", 7471, 0}, {"10.0.0.2", 7471, 0}});
  EXPECT_FALSE(places.several());
  EXPECT_TRUE(places.to_look_at().empty()) << "it was found nowhere";
  places.found({"10.0.0.2", 7471});
  EXPECT_EQ(places.to_look_at(), (std::vector<Place>{{"10.0.0.2", 7471}}));
  EXPECT_TRUE(places.other_addresses().empty());
}

TEST(Places, OfSeveralNamesAllAreLookedAtFirstWhereItWas) {
  Places places = two_named();
  places.found({"10.1.0.1", 7472});
  EXPECT_EQ(places.to_look_at(), (std::vector<Place>{{"10.1.0.1", 7472}, {"10.0.0.1", 7471}, {"10.0.0.2", 7471}}));
  EXPECT_EQ(places.other_addresses(), (Addresses{"10.0.0.1", "10.0.0.2"}));
}

TEST(Places, WhereAnotherEngineIsComesLastUntilThePeerIsThere) {
  Places places = two_named();
  places.found({"10.0.0.1", 7471});
  places.taken({"10.0.0.2", 7471});
  EXPECT_EQ(places.to_look_at(), (std::vector<Place>{{"10.0.0.1", 7471}, {"10.1.0.1", 7472}, {"10.0.0.2", 7471}}));
  places.taken({"10.0.0.1", 7471});
  EXPECT_EQ(places.to_look_at().back(), (Place{"10.0.0.1", 7471})) << "also where the peer was";
  places.found({"10.0.0.2", 7471});
  EXPECT_EQ(places.to_look_at(), (std::vector<Place>{{"10.0.0.2", 7471}, {"10.1.0.1", 7472}, {"10.0.0.1", 7471}}));
}

TEST(Places, AnAddressCountsOnceThoughItHasSeveralPorts) {
  Places places;
  places.set({{"10.0.0.1", 1, 0}, {"10.0.0.1", 2, 1}, {"10.0.0.2", 1, 2}, {"10.0.0.2", 2, 3}});
  places.found({"10.0.0.1", 1});
  EXPECT_EQ(places.other_addresses(), Addresses{"10.0.0.2"});
}

}  // namespace
}  // namespace fairlead::datapath
