#include "datapath/session/kept_frames.h"

#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

TEST(KeptFrames, AreKeptUntilTheyWereHeard) {
  KeptFrames frames;
  for (const char* wire : {"a", "bb", "ccc"}) frames.said(wire);
  EXPECT_EQ(frames.bytes(), 6U + 3 * sizeof(std::string)) << "what it takes to keep them counts";
  EXPECT_TRUE(frames.heard_there(0));
  ASSERT_TRUE(frames.heard_there(2));
  EXPECT_EQ(frames.kept(), (std::deque<std::string>{"ccc"}));
  EXPECT_EQ(frames.bytes(), 3U + sizeof(std::string));
  ASSERT_TRUE(frames.heard_there(2)) << "again";
  frames.said("d");
  ASSERT_TRUE(frames.heard_there(4));
  EXPECT_TRUE(frames.kept().empty());
  EXPECT_EQ(frames.bytes(), 0U);
}

TEST(KeptFrames, NobodyHasHeardWhatWasNotSaid) {
  KeptFrames frames;
  EXPECT_FALSE(frames.heard_there(1));
  frames.said("a");
  EXPECT_FALSE(frames.heard_there(2));
  EXPECT_FALSE(frames.heard_there(UINT64_MAX));
  ASSERT_TRUE(frames.heard_there(1));
  EXPECT_FALSE(frames.heard_there(0)) << "nor unhears it";
  EXPECT_EQ(frames.kept().size(), 0U);
}

TEST(KeptFrames, CountsWhatIsToBeTold) {
  KeptFrames frames;
  for (int i = 0; i < 3; ++i) frames.hear();
  EXPECT_EQ(frames.untold(), 3U);
  frames.told();
  EXPECT_EQ(frames.untold(), 0U);
  frames.hear();
  EXPECT_EQ(frames.heard(), 4U);
  EXPECT_EQ(frames.untold(), 1U);
}

}  // namespace
}  // namespace fairlead::datapath
