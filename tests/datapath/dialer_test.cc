#include "datapath/session/dialer.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

using std::chrono::seconds;

const Clock::time_point kStart{seconds(1000)};

TEST(Dialer, TriesOneAddressAfterTheOther) {
  Dialer dialer;
  dialer.begin({"2001:db8::1", "10.0.0.1", "10.0.0.2"}, 7400, kStart + seconds(9));
  EXPECT_EQ(dialer.port(), 7400);
  ASSERT_EQ(*dialer.next(kStart), "2001:db8::1");
  dialer.failed({Code::kUnavailable, "Network is unreachable"});
  ASSERT_EQ(*dialer.next(kStart), "10.0.0.1");
  dialer.failed({Code::kUnavailable, "Connection refused"});
  ASSERT_EQ(*dialer.next(kStart), "10.0.0.2");
  dialer.failed({Code::kResourceExhausted, "no descriptors"});
  EXPECT_EQ(dialer.next(kStart), nullptr);
  EXPECT_EQ(dialer.failure().code(), Code::kResourceExhausted);
  EXPECT_EQ(dialer.failure().message(),
            "2001:db8::1: Network is unreachable; 10.0.0.1: Connection refused; 10.0.0.2: no descriptors");
}

TEST(Dialer, ASingleAddressNeedsNoName) {
  Dialer dialer;
  dialer.begin({"10.0.0.1"}, 1, kStart + seconds(9));
  ASSERT_NE(dialer.next(kStart), nullptr);
  dialer.failed({Code::kUnavailable, "Connection refused"});
  EXPECT_EQ(dialer.failure().message(), "Connection refused");
}

TEST(Dialer, EachHasItsShareOfWhatIsLeft) {
  Dialer dialer;
  dialer.begin({"a", "b", "c"}, 1, kStart + seconds(9));
  ASSERT_NE(dialer.next(kStart), nullptr);
  EXPECT_FALSE(dialer.is_late(kStart + seconds(3) - Clock::duration(1)));
  EXPECT_TRUE(dialer.is_late(kStart + seconds(3)));
  ASSERT_NE(dialer.next(kStart + seconds(1)), nullptr) << "the first was refused soon";
  EXPECT_FALSE(dialer.is_late(kStart + seconds(5) - Clock::duration(1)));
  EXPECT_TRUE(dialer.is_late(kStart + seconds(5)));
  ASSERT_NE(dialer.next(kStart + seconds(5)), nullptr);
  EXPECT_FALSE(dialer.is_late(kStart + seconds(100))) << "the last has nobody to make room for";
}

}  // namespace
}  // namespace fairlead::datapath
