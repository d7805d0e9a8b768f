// Management datagrams between two devices that are joined in memory.
#include <gtest/gtest.h>

#include "tests/verbs/cm/captured.h"
#include "tests/verbs/soft/simulation.h"
#include "verbs/soft/management.h"
#include "verbs/soft/objects.h"

namespace fairlead::soft {
namespace {

struct Recorder final : ManagementHandler {
  void on_mad(const Gid& local, const Gid& remote, std::span<const std::byte, kMadBytes> mad) noexcept override {
    last_local = local;
    last_remote = remote;
    mads.emplace_back(mad.begin(), mad.end());
  }
  void run_timers() noexcept override { ++timers; }
  Gid last_local;
  Gid last_remote;
  std::vector<std::vector<std::byte>> mads;
  int timers = 0;
};

TEST(Qp1, CarriesAMad) {
  test::Simulation pair;
  Recorder recorder;
  Domain& a = impl(pair.a->context).domain();
  Domain& b = impl(pair.b->context).domain();
  b.set_management(&recorder);
  const Gid left = Gid::from_verbs(pair.a->gid());
  const Gid right = Gid::from_verbs(pair.b->gid());
  const cm::MadBytes mad = cm::test::pad(cm::test::kReq);
  {
    const DomainLock lock(a);
    EXPECT_TRUE(management::send(a, left, right, mad));
    EXPECT_FALSE(management::send(a, right, left, mad)) << "this device has no such address";
  }
  pair.run_for(kMillisecond);
  ASSERT_EQ(recorder.mads.size(), 1U);
  EXPECT_EQ(recorder.mads[0], std::vector<std::byte>(mad.begin(), mad.end()));
  EXPECT_EQ(recorder.last_local, right);
  EXPECT_EQ(recorder.last_remote, left);
  b.set_management(nullptr);
}

TEST(Qp1, WithoutAHandlerMadsAreDropped) {
  test::Simulation pair;
  Domain& a = impl(pair.a->context).domain();
  {
    const DomainLock lock(a);
    EXPECT_TRUE(management::send(a, Gid::from_verbs(pair.a->gid()), Gid::from_verbs(pair.b->gid()), cm::MadBytes{}));
  }
  pair.run_for(kMillisecond);
  EXPECT_EQ(pair.b->counter("drop_no_qp"), 1U);
}

TEST(Qp1, TimersOfTheHandlerRun) {
  test::Simulation pair;
  Recorder recorder;
  Domain& a = impl(pair.a->context).domain();
  a.set_management(&recorder);
  {
    const DomainLock lock(a);
    a.set_deadline(pair.clock.now() + kMillisecond);
  }
  pair.run_for(2 * kMillisecond);
  EXPECT_EQ(recorder.timers, 1);
  a.set_management(nullptr);
}

}  // namespace
}  // namespace fairlead::soft
