#include "doctor/probes.h"

#include <gtest/gtest.h>

namespace fairlead::doctor {
namespace {

TEST(Probes, UserfaultfdIsAllowedOrRefusedWithAnErrno) {
  const Probes probes = probes_of_this_machine();
  const int first = probes.userfaultfd();
  EXPECT_GE(first, 0);
  EXPECT_EQ(probes.userfaultfd(), first);  // nothing is left behind that would change the answer
}

TEST(Probes, LoopbackAndWhatIsNoInterfacePauseNothing) {
  const Probes probes = probes_of_this_machine();
  EXPECT_EQ(probes.pfc("lo"), std::nullopt);
  EXPECT_EQ(probes.pfc("no-such-if"), std::nullopt);
  EXPECT_EQ(probes.pfc("a-name-that-is-longer-than-any-interface"), std::nullopt);
}

}  // namespace
}  // namespace fairlead::doctor
