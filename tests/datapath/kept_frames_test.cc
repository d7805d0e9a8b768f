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

TEST(KeptFrames, WhatWasNotHeardIsSaidAgainInPieces) {
  KeptFrames frames;
  for (const char* wire : {"a", "bb", "ccc"}) frames.said(wire);
  EXPECT_FALSE(frames.waiting());
  frames.wait("dd");
  EXPECT_TRUE(frames.waiting());
  EXPECT_FALSE(frames.heard_there(4)) << "it was never said";
  ASSERT_TRUE(frames.heard_there(1));
  frames.say_again();
  EXPECT_EQ(frames.waiting_bytes(), frames.bytes());
  EXPECT_EQ(frames.say(1), "bb") << "one, however long";
  ASSERT_TRUE(frames.heard_there(3)) << "on the connection before";
  frames.wait("e");
  EXPECT_EQ(frames.waiting_bytes(), 3U + 2 * sizeof(std::string));
  EXPECT_EQ(frames.say(3), "dde");
  EXPECT_FALSE(frames.waiting());
  EXPECT_EQ(frames.waiting_bytes(), 0U);
  EXPECT_EQ(frames.say(3), "");
  frames.said("f");
  ASSERT_TRUE(frames.heard_there(6));
  EXPECT_EQ(frames.bytes(), 0U);
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
