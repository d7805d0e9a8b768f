#include "datapath/engine/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

TEST(EngineListener, ThatCannotBeWatchedSaysSo) {
  Listener listener;
  const Status refused = listener.open("127.0.0.1:0", -1);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), testing::HasSubstr("no room to watch the socket at 127.0.0.1:"));
}

}  // namespace
}  // namespace fairlead::datapath
