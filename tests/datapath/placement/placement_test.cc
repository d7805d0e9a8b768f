// What an engine's placement is made of: affinity, claims on CPUs, the NICs that transports go over, pages of arenas,
// and the plan for machines that are made up.
#include "datapath/placement/placement.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/system/affinity.h"
#include "base/system/numa.h"
#include "fairlead/log.h"
#include "tests/topology/machines.h"

namespace fairlead::datapath {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using topology::Machine;

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = (std::filesystem::temp_directory_path() / "fairlead-placement-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  [[nodiscard]] std::string claims() const { return root_ + "/claims"; }

  std::string root_;
};

// ---- claims

using Claims = Folder;

TEST_F(Claims, AreOfOneAtATimeAndEndWithTheirOwner) {
  CoreClaims other(claims());
  {
    CoreClaims first(claims());
    EXPECT_FALSE(other.is_taken(5));
    EXPECT_TRUE(first.claim(5));
    EXPECT_TRUE(first.claim(5)) << "it is its own already";
    EXPECT_FALSE(first.is_taken(5));
    EXPECT_TRUE(other.is_taken(5));
    EXPECT_FALSE(other.is_taken(4));
    EXPECT_FALSE(other.claim(5));
    EXPECT_TRUE(other.claim(6));
  }
  EXPECT_FALSE(other.is_taken(5));
  EXPECT_TRUE(other.claim(5));
}

TEST_F(Claims, OfAForkedChildAreItsOwn) {
  CoreClaims parent(claims());
  ASSERT_TRUE(parent.claim(1));
  const pid_t child = ::fork();
  if (child == 0) {
    CoreClaims own(claims());
    ::_exit(own.is_taken(1) && own.claim(2) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(parent.is_taken(2)) << "the child has ended";
}

TEST(ClaimsWithoutAFile, StopNobody) {
  CoreClaims claims("/nowhere/at/all");
  EXPECT_FALSE(claims.is_taken(0));
  EXPECT_TRUE(claims.claim(0));
}

// ---- NICs

class UsedNics : public Folder {
 protected:
  UsedNics() : machine(topology::make_machine(2, 2)) {
    near = topology::add_nic(&machine, 0, 25);
    far = topology::add_nic(&machine, 1, 25);
    machine.devices[near].rdma_devices = {"mlx5_0"};
    machine.devices[near].net_devices = {"eth0"};
    machine.devices[far].rdma_devices = {};
    machine.devices[far].net_devices = {"eth1"};
  }
  std::vector<std::vector<std::size_t>> find(const std::vector<UsedTransport>& transports) {
    return nics_of(transports, addresses, root_, &machine);
  }

  Machine machine;
  std::size_t near = 0, far = 0;
  std::vector<LocalAddress> addresses{{"10.0.0.1", "eth0"}, {"10.1.0.1", "eth1"}, {"fd00::1", "bond0.7"}};
};

TEST_F(UsedNics, AreThoseOfTheDeviceOrOfTheAddress) {
  EXPECT_THAT(find({{"verbs:mlx5_0", {"10.1.0.1"}},
                    {"verbs:soft0", {"10.1.0.1"}},
                    {"tcp", {"127.0.0.1"}},
                    {"tcp", {"fd00:0::1"}}}),
              ElementsAre(ElementsAre(near), ElementsAre(far), IsEmpty(), ElementsAre(far + 1)));
  EXPECT_EQ(machine.devices[far + 1].name, "bond0.7");
  EXPECT_EQ(machine.devices[far + 1].cores.size(), 4U);
}

TEST_F(UsedNics, AreThoseBelowABondAndAVlan) {
  write("/sys/class/net/bond0.7/lower_bond0/ifindex", "3\n");
  write("/sys/class/net/bond0/lower_eth0/ifindex", "1\n");
  write("/sys/class/net/bond0/lower_eth1/ifindex", "2\n");
  EXPECT_THAT(find({{"tcp", {"fd00::1"}}}), ElementsAre(ElementsAre(near, far)));
}

TEST_F(UsedNics, OfWhatGoesEverywhereAreAllOfTheMachine) {
  EXPECT_THAT(find({{"tcp", {}, true}}), ElementsAre(ElementsAre(near, far)));
  EXPECT_EQ(machine.devices.size(), 2U);
  addresses = {{"10.2.0.1", "veth0"}};
  write("/sys/class/net/veth0/speed", "10000\n");
  EXPECT_THAT(find({{"tcp", {}, true}}), ElementsAre(ElementsAre(2)));
  EXPECT_EQ(machine.devices[2].rate, 1.25e9);
}

TEST_F(UsedNics, InterfacesStandInWhereNoNicIsNamed) {
  write("/sys/class/net/veth0/speed", "10000\n");
  write("/sys/class/net/veth1/speed", "2500\n");
  const auto alone = topology::Unknown::kAddWhereNoNicIs;
  EXPECT_THAT(topology::nics_behind({"eth1", "veth0"}, alone, root_, &machine), ElementsAre(far));
  EXPECT_EQ(machine.devices.size(), 2U);
  EXPECT_THAT(topology::nics_behind({"veth0", "veth1"}, alone, root_, &machine), ElementsAre(2, 3));
  EXPECT_THAT(topology::nics_behind({"veth0", "veth1"}, alone, root_, &machine), ElementsAre(2, 3)) << "added once";
  EXPECT_EQ(machine.devices[2].rate, 1.25e9);
  EXPECT_EQ(machine.devices[3].rate, 0.3125e9);
  EXPECT_THAT(topology::nics_behind({"eth0", "veth0"}, topology::Unknown::kAdd, root_, &machine), ElementsAre(near, 2));
}

TEST(LocalAddresses, AreNumericAndNeverTheLoopbacks) {
  for (const LocalAddress& each : local_addresses()) {
    EXPECT_TRUE(is_address(each.address)) << each.address;
    EXPECT_NE(each.interface, "lo");
  }
  EXPECT_FALSE(is_address("localhost"));
  EXPECT_FALSE(is_address(""));
}

// ---- the pool

TEST(PoolPlacementTest, LooksAtArenasWhileTheyLive) {
  const auto pool = std::make_shared<PoolPlacement>(std::nullopt);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* const start = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(start, MAP_FAILED);
  const std::span arena(static_cast<std::byte*>(start), kBytes);
  std::ranges::fill(arena, std::byte{1});
  const auto owner = std::make_shared<int>(7);
  std::shared_ptr<void> watched = pool->watch(arena, owner);
  EXPECT_EQ(watched.get(), owner.get());
  const PoolPlacement::Pages pages = pool->look();
  if (!pages.refused.ok()) GTEST_SKIP() << pages.refused.to_string();
  std::size_t seen = 0;
  for (const std::size_t on_node : pages.on_node) seen += on_node;
  EXPECT_EQ(seen, 256U);
  watched.reset();
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_THAT(pool->look().on_node, IsEmpty());
  ::munmap(start, kBytes);
}

// ---- all of it, on machines that are made up

class PlacementTest : public UsedNics {
 protected:
  Surroundings around() const {
    return {.machine = machine, .addresses = addresses, .root = root_, .claims = claims()};
  }
  static EngineConfig config(const std::string& placement, std::size_t lanes = 1) {
    EngineConfig config;
    config.placement = placement;
    config.lanes = lanes;
    return config;
  }
};

TEST_F(PlacementTest, PlansForTheTransportsInUse) {
  Placement placement;
  ASSERT_TRUE(placement.plan(config("auto"), {{"verbs:soft0", {"10.1.0.1"}}}, around()).ok());
  const PlacementReport report = placement.report();
  EXPECT_EQ(report.pool_node, 1U);
  EXPECT_EQ(placement.pool()->node(), 1U);
  ASSERT_EQ(report.shares.size(), 1U);
  EXPECT_THAT(report.shares[0].nics, ElementsAre("nic1"));
  EXPECT_THAT(report.lanes.at(0).reason, HasSubstr("beside nic1"));
  EXPECT_FALSE(report.lanes.at(0).pinned) << "nothing was pinned yet";
}

TEST_F(PlacementTest, TwoEnginesTakeTwoCores) {
  Placement first, second, third;
  const std::vector<UsedTransport> far_nic{{"verbs:soft0", {"10.1.0.1"}}};
  ASSERT_TRUE(first.plan(config("auto"), far_nic, around()).ok());
  ASSERT_TRUE(second.plan(config("auto"), far_nic, around()).ok());
  CoreClaims seen(claims());
  EXPECT_TRUE(seen.is_taken(2));
  EXPECT_TRUE(seen.is_taken(3));
  EXPECT_FALSE(seen.is_taken(0));
  ASSERT_TRUE(third.plan(config("auto"), far_nic, around()).ok());
  EXPECT_TRUE(seen.is_taken(0)) << "rather a far core than one that is shared";
  EXPECT_THAT(third.report().lanes[0].reason, HasSubstr("taken"));
  first.release();
  EXPECT_FALSE(seen.is_taken(2));
}

TEST_F(PlacementTest, EnginesOnOneCoreTakeItsThreads) {
  for (topology::Core& core : machine.cores) core.usable_pus.clear();
  machine.cores[2].pus = machine.cores[2].usable_pus = {2, 6};
  CoreClaims other(claims());
  ASSERT_TRUE(other.claim(6));
  Placement first, second;
  ASSERT_TRUE(first.plan(config("node=1"), {}, around()).ok());
  EXPECT_TRUE(other.is_taken(2)) << "the thread that is free";
  ASSERT_TRUE(second.plan(config("node=1"), {}, around()).ok());
  EXPECT_THAT(second.report().lanes[0].reason, HasSubstr("shared"));
  // The other way round: the first of the threads is taken.
  first.release();
  second.release();
  CoreClaims now(claims());
  ASSERT_TRUE(now.claim(2));
  other.release();
  Placement third;
  ASSERT_TRUE(third.plan(config("node=1"), {}, around()).ok());
  EXPECT_TRUE(now.is_taken(6));
}

TEST_F(PlacementTest, PinsNothingWhereTheApplicationDrives) {
  Placement placement;
  EngineConfig own = config("node=1");
  own.progress = Progress::kApplication;
  ASSERT_TRUE(placement.plan(own, {}, around()).ok());
  placement.pin(0, std::nullopt);
  const PlacementReport report = placement.report();
  EXPECT_FALSE(report.lanes[0].pinned);
  EXPECT_THAT(report.lanes[0].cpus, IsEmpty());
  EXPECT_THAT(report.lanes[0].reason, HasSubstr("kApplication"));
  EXPECT_EQ(report.pool_node, 1U);
  EXPECT_FALSE(std::filesystem::exists(claims()));
  EXPECT_TRUE(placement.elsewhere().empty());
}

TEST_F(PlacementTest, WeightsAreAmongTransportsOfAKind) {
  const std::vector<UsedTransport> three{
      {"verbs:soft0", {"10.0.0.1"}}, {"verbs:soft1", {"10.1.0.1"}}, {"tcp", {"10.1.0.1"}}};
  machine.devices[near].rdma_devices.clear();
  machine.devices[near].rate = 20e9;
  machine.devices[far].rate = 5e9;
  machine.memories[0].bandwidth = machine.memories[1].bandwidth = 100e9;
  Placement placement;
  ASSERT_TRUE(placement.plan(config("auto"), three, around()).ok());
  EXPECT_NEAR(placement.weight_of("verbs:soft0"), 4, 1e-3);
  EXPECT_EQ(placement.weight_of("verbs:soft1"), 1);
  EXPECT_EQ(placement.weight_of("tcp"), 2) << "there is one alone";
  EXPECT_EQ(placement.weight_of("verbs:soft2"), 2) << "it came later";
  Placement alike;
  ASSERT_TRUE(
      alike.plan(config("auto"), {{"verbs:soft0", {"10.0.0.1"}}, {"verbs:soft1", {"10.0.0.1"}}}, around()).ok());
  EXPECT_EQ(alike.weight_of("verbs:soft0"), 2);
  EXPECT_EQ(alike.weight_of("verbs:soft1"), 2);
}

int g_nothing = 0, g_something = 0;

// In a child, for what is said once is said once in a process.
TEST_F(PlacementTest, SaysOnceThatNothingIsChosen) {
  const pid_t child = ::fork();
  if (child == 0) {
    set_log_sink([](LogLevel, std::string_view line) {
      if (!line.starts_with("placement: ")) return;
      ++(line.find("no lane is pinned (one NUMA node") != std::string_view::npos ? g_nothing : g_something);
    });
    set_log_level(LogLevel::kInfo);
    Placement first, second, elsewhere, again;
    Surroundings one_node = around();
    one_node.machine = topology::make_machine(1, 2);
    const bool planned =
        first.plan(config("auto"), {}, one_node).ok() && second.plan(config("auto"), {}, one_node).ok();
    first.say();
    if (!planned || g_nothing != 1) ::_exit(1);
    second.say();
    first.say();
    if (g_nothing != 1 || g_something != 0) ::_exit(2);
    if (!elsewhere.plan(config("node=1"), {}, around()).ok() || !again.plan(config("node=0"), {}, around()).ok()) {
      ::_exit(3);
    }
    elsewhere.say();
    again.say();
    ::_exit(g_nothing == 1 && g_something == 2 ? 0 : 4);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PlacementTest, ThatIsOffLooksAtNothing) {
  Placement placement;
  ASSERT_TRUE(placement.plan(config("off", 2), {{"tcp", {}, true}}).ok());
  const PlacementReport report = placement.report();
  EXPECT_EQ(report.lanes.size(), 2U);
  EXPECT_FALSE(report.pool_node);
  EXPECT_THAT(report.to_string(), HasSubstr("no lane is pinned (placement is off); the pool is bound to no NUMA node"));
}

TEST_F(PlacementTest, ThreadsGoWhereThePlanSaysAndTheRestStaysWhereItWas) {
  const std::vector<unsigned> before = affinity_of(::pthread_self());
  // A machine whose second node has the CPUs of this one, and no others.
  machine.cores[2].pus = machine.cores[2].usable_pus = {before.back()};
  machine.cores[3].usable_pus.clear();
  Placement placement;
  ASSERT_TRUE(placement.plan(config("node=1"), {}, around()).ok());
  std::atomic<bool> over{false};
  std::thread thread([&over] { over.wait(false); });
  placement.pin(0, thread.native_handle());
  EXPECT_THAT(affinity_of(thread.native_handle()), ElementsAre(before.back()));
  over.store(true);
  over.notify_all();
  thread.join();
  const PlacementReport report = placement.report();
  EXPECT_TRUE(report.lanes[0].pinned);
  EXPECT_THAT(report.lanes[0].cpus, ElementsAre(before.back()));
  EXPECT_EQ(std::vector(placement.elsewhere().begin(), placement.elsewhere().end()), before);
  EXPECT_THAT(report.to_string(), HasSubstr("lane 0 on CPU " + std::to_string(before.back())));
}

}  // namespace
}  // namespace fairlead::datapath
