// Memory that is withdrawn while a peer is at it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/shm/end.h"
#include "tests/shm/own_directory.h"

namespace fairlead::shm {
namespace {

TEST(ShmRevoke, StopsAReadThatIsUnderWay) {
  const OwnDirectory directory;
  Ends ends;
  ASSERT_TRUE(ends.meet(directory.config()));
  std::ranges::fill(ends.other.memory, std::byte{7});
  const auto read = [&] { return std::ranges::count(ends.one.memory, std::byte{7}); };
  ASSERT_TRUE(ends.one.post(datapath::OpKind::kRead, ends.other.granted.key));
  ASSERT_TRUE(ends.both_until([&] { return read() > 0; }));
  const auto before = read();
  ASSERT_LT(before, static_cast<std::ptrdiff_t>(End::kBytes)) << "it is in the middle";
  ends.other.device->revoke(ends.other.granted);
  ASSERT_TRUE(ends.both_until([&] { return ends.one.codes.size() == 1; }));
  EXPECT_EQ(ends.one.codes.front(), Code::kProtectionError);
  EXPECT_EQ(read(), before) << "it has read on";
  EXPECT_EQ(ends.one.downs, 0);
}

}  // namespace
}  // namespace fairlead::shm
