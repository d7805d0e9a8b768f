// A path that stands still.
#include "tests/datapath/path_set_end.h"

namespace fairlead::datapath::path_test {
namespace {

class Stall : public testing::Test {
 protected:
  Stall() {
    end.reach(State::kInUse);
    std::ignore = end.paths.slot()->in_flight.end_oldest();  // the hello
    end.paths.slot()->moved = false;
  }
  void look(milliseconds after) {
    end.time += after;
    end.paths.check_progress(end.time);
  }
  End end{true};
};

TEST_F(Stall, AnIdlePathIsNotAsked) {
  const std::size_t sent = end.sent.size();
  look(milliseconds(10'000));
  EXPECT_EQ(end.sent.size(), sent);
}

TEST_F(Stall, IsLeftWhenThePeerLivesAndNothingMoves) {
  end.paths.slot()->in_flight.push({});
  look(milliseconds(299));
  EXPECT_FALSE(end.last_is<control::Ping>());
  look(milliseconds(2));
  ASSERT_TRUE(end.last_is<control::Ping>());
  look(milliseconds(1000));
  EXPECT_EQ(end.lost, 0) << "a peer that does not answer may be what stands still";
  end.paths.peer_answered();
  look(milliseconds(1));
  EXPECT_EQ(end.lost, 1);
}

TEST(PassiveStall, IsToldToTheActiveEndAgainAndAgain) {
  for (const bool knows : {true, false}) {  // the peer's version
    End end(false);
    if (knows) end.paths.allow_beside();
    end.reach(State::kInUse);
    end.paths.slot()->in_flight.push({});
    const auto look = [&end](milliseconds after) {
      end.time += after;
      end.paths.check_progress(end.time);
    };
    look(milliseconds(0));
    for (int i = 0; i < 3; ++i) {
      look(milliseconds(301));
      EXPECT_EQ(end.last_is<control::Ping>(), knows);
      look(milliseconds(301));
      EXPECT_EQ(end.last_is<control::Ping>(), knows) << "the peer does not answer";
      end.paths.peer_answered();
      look(milliseconds(1));
      ASSERT_EQ(end.last_is<control::PathDown>(), knows);
      if (knows) {
        EXPECT_TRUE(end.last<control::PathDown>().stalled);
      }
    }
    EXPECT_EQ(end.paths.state(), State::kInUse);
    EXPECT_EQ(end.lost, 0);
  }
}

TEST(PassiveStall, MakesTheActiveEndLeaveAPathOnlyForAnother) {
  for (const bool other : {true, false}) {
    End end(true);
    end.reach(State::kInUse);
    if (!other) {
      end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
      end.pass(milliseconds(5));
      end.drained = true;
      end.pass(milliseconds(1));
      end.drained = false;
      end.fence_ack();
      end.epoch = 2;
      end.prove(*end.paths.slot());
      end.ready();
      ASSERT_EQ(end.paths.state(), State::kInUse);  // and the other's pause is not over
    }
    const int lost = end.lost;
    EXPECT_TRUE(end.paths.handle(control::PathDown{.epoch = end.epoch,
                                                   .code = static_cast<std::uint32_t>(Code::kUnavailable),
                                                   .reason = "slow",
                                                   .stalled = true}));
    EXPECT_EQ(end.lost, lost + (other ? 1 : 0));
    EXPECT_EQ(end.paths.state(), other ? State::kClosing : State::kInUse);
  }
}

TEST_F(Stall, WhatMovesIsKept) {
  end.paths.slot()->in_flight.push({});
  look(milliseconds(301));
  ASSERT_TRUE(end.last_is<control::Ping>());
  end.paths.peer_answered();
  end.paths.slot()->moved = true;
  look(milliseconds(400));
  look(milliseconds(200));
  EXPECT_EQ(end.lost, 0);
}

TEST_F(Stall, MemoryIsTakenBackFromAPathThatStandsStillOnly) {
  end.paths.slot()->in_flight.push({});
  const Clock::time_point since = end.time;
  for (int i = 0; i < 5; ++i) {  // each completion gives the rest their time again
    look(milliseconds(200));
    end.paths.take_back_memory(since, end.time);
    EXPECT_EQ(end.lost, 0);
    end.paths.slot()->moved = true;
  }
  look(milliseconds(1));
  look(milliseconds(300));
  end.paths.take_back_memory(since, end.time);
  EXPECT_EQ(end.lost, 0);
  look(milliseconds(1));
  end.paths.take_back_memory(since, end.time);
  EXPECT_EQ(end.lost, 1);
}

// A peer may answer all but one staged operation, for ever.
TEST_F(Stall, MemoryIsTakenBackFromAPathThatMovesWithoutIt) {
  end.paths.slot()->in_flight.push({});
  const Clock::time_point since = end.time;
  while (end.time - since < milliseconds(10'000)) {
    look(milliseconds(200));
    end.paths.slot()->moved = true;
    end.paths.take_back_memory(since, end.time, since);
    end.paths.take_back_memory(since, end.time);
  }
  EXPECT_EQ(end.lost, 0);
  look(milliseconds(1));
  end.paths.take_back_memory(since, end.time);
  EXPECT_EQ(end.lost, 0) << "another path has it";
  end.paths.take_back_memory(since, end.time, since);
  EXPECT_EQ(end.lost, 1);
}

// What it was waited for was on another path of the flow.
TEST_F(Stall, APathThatHadNothingToDoHasNotStoodStill) {
  const Clock::time_point since = end.time;
  look(milliseconds(10'000));
  end.paths.slot()->in_flight.push({});
  look(milliseconds(300));
  end.paths.take_back_memory(since, end.time);
  EXPECT_EQ(end.lost, 0);
  look(milliseconds(1));
  end.paths.take_back_memory(since, end.time);
  EXPECT_EQ(end.lost, 1);
}

TEST_F(Stall, ALargeOperationHasItsTime) {
  PostedRequest large;
  large.use = PostedRequest::Use::kWrite;
  large.bytes = 512 * 1024;
  end.paths.slot()->in_flight.push(large);
  look(milliseconds(1200));
  EXPECT_FALSE(end.last_is<control::Ping>());
  look(milliseconds(200));
  EXPECT_TRUE(end.last_is<control::Ping>());
}

}  // namespace
}  // namespace fairlead::datapath::path_test
