#include "topology/lanes.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "tests/topology/machines.h"

namespace fairlead::topology {
namespace {

using ::testing::HasSubstr;

TEST(Lanes, RunBesideTheirNics) {
  Machine machine = make_machine(2, 2);
  const std::size_t first = add_nic(&machine, 0, 10), second = add_nic(&machine, 1, 10);
  const std::vector<LanePlace> places = place_lanes(machine, {second, first, second});
  EXPECT_EQ(places[0].core, 2u);
  EXPECT_EQ(places[1].core, 0u);
  EXPECT_EQ(places[2].core, 3u);
  EXPECT_FALSE(places[0].shared || places[1].shared || places[2].shared);
}

TEST(Lanes, AFreeCoreFarAwayIsBetterThanABusyOne) {
  Machine machine = make_machine(2, 1);
  const std::size_t nic = add_nic(&machine, 0, 10);
  const std::vector<LanePlace> places = place_lanes(machine, {nic, nic, nic});
  EXPECT_EQ(places[0].core, 0u);
  EXPECT_EQ(places[1].core, 1u);
  EXPECT_EQ(places[2].core, 0u);
  EXPECT_TRUE(places[0].shared);
  EXPECT_FALSE(places[1].shared);
  EXPECT_THAT(places[2].reason, HasSubstr("no core is free"));
}

TEST(Lanes, WhatThisProcessMayNotUseIsNotUsed) {
  Machine machine = make_machine(1, 3);
  const std::size_t nic = add_nic(&machine, 0, 10);
  machine.cores[0].usable_pus.clear();
  machine.cores[1].isolated = true;
  EXPECT_EQ(place_lanes(machine, {nic})[0].core, 2u);
  machine.cores[2].usable_pus.clear();
  EXPECT_EQ(place_lanes(machine, {nic})[0].core, 1u);
  EXPECT_THAT(place_lanes(machine, {nic})[0].reason, HasSubstr("isolated"));
  machine.cores[1].usable_pus.clear();
  EXPECT_EQ(place_lanes(machine, {nic})[0].core, std::nullopt);
}

TEST(Lanes, OfACoreWithThreadsAUsableOneIsTaken) {
  Machine machine = make_machine(1, 1);
  const std::size_t nic = add_nic(&machine, 0, 10);
  machine.cores[0].pus = {0, 1, 2};
  machine.cores[0].usable_pus = {1, 2};
  const std::vector<LanePlace> places = place_lanes(machine, {nic, nic, nic});
  EXPECT_EQ(places[0].pu, 1u);
  EXPECT_EQ(places[1].pu, 2u);
  EXPECT_EQ(places[2].pu, 1u);
}

TEST(Lanes, OfABusyCoreTheThreadThatIsFreeIsTaken) {
  Machine machine = make_machine(1, 2);
  const std::size_t nic = add_nic(&machine, 0, 10);
  machine.cores[0].pus = machine.cores[0].usable_pus = {0, 2};
  machine.cores[1].pus = machine.cores[1].usable_pus = {1, 3};
  const std::vector<LanePlace> places = place_lanes(machine, {nic, nic, nic}, {2, 1});
  EXPECT_EQ(places[0].pu, 0u);
  EXPECT_EQ(places[1].pu, 3u);
  EXPECT_EQ(places[2].pu, 0u);
  EXPECT_TRUE(places[0].shared && places[1].shared && places[2].shared);
  // One that this process may not use counts for its core.
  machine.cores[0].usable_pus = {0};
  EXPECT_EQ(place_lanes(machine, {nic}, {2})[0].core, 1u);
}

// For any machine and lanes: two on a core only if every core that may be used has one, and loads differ by one at
// most.
TEST(Lanes, LoadIsEven) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Machine machine = make_machine(1 + random() % 3, 1 + random() % 4);
    std::vector<std::size_t> nics, lanes;
    for (std::size_t i = 0; i < 3; ++i) nics.push_back(add_nic(&machine, random() % machine.packages.size(), 10));
    for (std::size_t i = random() % 12; i > 0; --i) lanes.push_back(nics[random() % nics.size()]);
    std::size_t usable = 0;
    for (Core& core : machine.cores) {
      if (random() % 4 == 0) core.usable_pus.clear();
      usable += !core.usable_pus.empty();
    }
    std::map<std::size_t, std::size_t> load;
    for (const LanePlace& place : place_lanes(machine, lanes)) {
      ASSERT_EQ(place.core.has_value(), usable > 0) << round;
      if (!place.core) continue;
      ASSERT_FALSE(machine.cores[*place.core].usable_pus.empty()) << round;
      ++load[*place.core];
    }
    if (usable == 0) continue;
    for (const auto& [core, count] : load) {
      ASSERT_LE(count, (lanes.size() + usable - 1) / usable) << round;
      if (count > 1) {
        ASSERT_EQ(load.size(), usable) << round;
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::topology
