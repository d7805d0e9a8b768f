// A better path beside the one in use.
#include "tests/datapath/path_set_end.h"

namespace fairlead::datapath::path_test {
namespace {

class Beside : public testing::Test {
 protected:
  /// The best failed, and the next is in use.
  void fall_back(End& end) {
    end.paths.allow_beside();
    end.reach(State::kFenced);
    end.drained = false;
    end.fence_ack();
    ASSERT_EQ(end.paths.state(), State::kSettingUp);
    end.epoch = 2;
    prove(end, *end.paths.slot());
    ASSERT_EQ(end.paths.state(), State::kInUse);
    ASSERT_EQ(end.used, 2);
  }
  void prove(End& end, PathSlot& slot) {
    end.prove(slot);
    end.ready();
  }
  /// The active end looks whether the best works again.
  void look(End& end) {
    end.pass(Trials::kFirstPause);
    ASSERT_NE(end.paths.beside(), nullptr);
    ASSERT_TRUE(end.last_is<control::PathOffer>());
    EXPECT_EQ(end.last<control::PathOffer>().active_transport, 0u);
    end.epoch = end.last<control::PathOffer>().epoch;
  }
};

TEST_F(Beside, TheBestTakesOverOnceItWorksAgain) {
  End end(true);
  fall_back(end);
  look(end);
  EXPECT_EQ(end.epoch, 3u);
  EXPECT_EQ(end.paths.state(), State::kInUse) << "which goes on";
  prove(end, *end.paths.beside());
  EXPECT_TRUE(end.paths.left_for_better());
  EXPECT_EQ(end.paths.state(), State::kClosing);
  EXPECT_FALSE(end.paths.may_carry(*end.paths.beside()));
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_TRUE(end.last_is<control::Fence>());
  EXPECT_EQ(end.last<control::Fence>().epoch, 2u) << "of the path that was in use";
  EXPECT_TRUE(end.paths.may_carry(*end.paths.beside())) << "the peer may have heard of the fence, and use it";
  EXPECT_EQ(end.used, 2);
  end.epoch = 2;
  end.fence_ack(5);
  EXPECT_THAT(end.applied, testing::ElementsAre(0, 5));
  EXPECT_EQ(end.used, 3);
  EXPECT_EQ(end.paths.state(), State::kInUse);
  EXPECT_EQ(end.paths.slot()->transport, 0u);
  EXPECT_EQ(end.paths.beside(), nullptr);
  EXPECT_EQ(end.paths.left_because().second, "fake:0 works again");
  EXPECT_EQ(end.paths.explain(), "fake:0 (a path): best; fake:1: ranks below") << "nothing speaks against the other";
}

TEST_F(Beside, OneThatDoesNotWorkCostsTheOneInUseNothing) {
  End end(true);
  fall_back(end);
  milliseconds pause = 2 * Trials::kFirstPause;  // the first was after the failure
  look(end);
  for (int i = 0; i < 8; ++i, pause *= 2) {
    end.says_down();
    EXPECT_EQ(end.paths.beside(), nullptr);
    end.pass(pause - milliseconds(1));
    EXPECT_EQ(end.paths.beside(), nullptr) << i;
    end.pass(milliseconds(1));
    ASSERT_NE(end.paths.beside(), nullptr) << i;
    end.epoch = end.last<control::PathOffer>().epoch;
  }
  EXPECT_EQ(end.paths.state(), State::kInUse);
  EXPECT_EQ(end.lost, 1);
  EXPECT_EQ(end.used, 2);
  EXPECT_TRUE(end.failed.ok()) << "however often";

  // Nor does it speak against it once the one in use dies.
  end.says_down();
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
  end.pass(milliseconds(5));
  end.drained = true;
  end.pass(milliseconds(1));
  end.epoch = 2;
  end.fence_ack();
  ASSERT_TRUE(end.last_is<control::PathOffer>());
  EXPECT_EQ(end.last<control::PathOffer>().active_transport, 0u);
}

TEST_F(Beside, OneThatIsNotProvedInTimeIsGivenUpAtBothEnds) {
  for (const bool active : {true, false}) {
    End end(active);
    if (active) {
      fall_back(end);
      look(end);
    } else {
      end.paths.allow_beside();
      end.reach(State::kInUse);
      end.offer(2);
    }
    ASSERT_NE(end.paths.beside(), nullptr);
    const std::uint64_t epoch = end.paths.beside()->epoch;
    end.pass(milliseconds(4001));
    EXPECT_EQ(end.paths.beside(), nullptr);
    ASSERT_TRUE(end.last_is<control::PathDown>());
    EXPECT_EQ(end.last<control::PathDown>().epoch, epoch);
    EXPECT_EQ(end.paths.state(), State::kInUse);
  }
}

TEST_F(Beside, WhenTheOneInUseDiesItIsNextAlready) {
  End end(true);
  fall_back(end);
  look(end);
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
  end.pass(milliseconds(5));
  EXPECT_FALSE(end.paths.left_for_better());
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_TRUE(end.last_is<control::Fence>());
  end.epoch = 2;
  end.fence_ack();
  EXPECT_TRUE(end.last_is<control::Fence>()) << "no other is offered";
  ASSERT_EQ(end.paths.state(), State::kSettingUp);
  EXPECT_EQ(end.paths.slot()->epoch, 3u);
  end.epoch = 3;
  prove(end, *end.paths.slot());
  EXPECT_EQ(end.paths.state(), State::kInUse);
}

// Its death is told once the fence is over: until then the peer, which may use it already, could not be fenced from it.
TEST_F(Beside, OneThatDiesWhileThePeerMayUseItIsFenced) {
  End end(true);
  fall_back(end);
  look(end);
  prove(end, *end.paths.beside());
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_EQ(end.paths.state(), State::kFenced);
  end.paths.on_down(*end.paths.beside(), Code::kUnavailable, "cable");
  end.pass(milliseconds(100));
  ASSERT_NE(end.paths.beside(), nullptr);
  EXPECT_TRUE(end.last_is<control::Fence>());
  end.epoch = 2;
  end.fence_ack();
  end.pass(milliseconds(5));
  ASSERT_TRUE(end.last_is<control::Fence>());
  EXPECT_EQ(end.last<control::Fence>().epoch, 3u);
}

TEST_F(Beside, PassiveGoesOverWithItsFenceAck) {
  End end(false);
  end.paths.allow_beside();
  end.reach(State::kInUse);
  end.offer(2, 1, 1);
  ASSERT_TRUE(end.last_is<control::PathAnswer>());
  EXPECT_EQ(end.last<control::PathAnswer>().epoch, 2u);
  prove(end, *end.paths.beside());
  EXPECT_EQ(end.paths.state(), State::kInUse);
  EXPECT_FALSE(end.paths.may_carry(*end.paths.beside())) << "the active end is to fence first";
  end.epoch = 1;
  end.fence(4);
  EXPECT_TRUE(end.paths.left_for_better());
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_TRUE(end.last_is<control::FenceAck>());
  EXPECT_EQ(end.last<control::FenceAck>().epoch, 1u);
  EXPECT_EQ(end.used, 2);
  EXPECT_EQ(end.paths.slot()->epoch, 2u);
  EXPECT_EQ(end.paths.beside(), nullptr);
}

TEST_F(Beside, ThereIsOneAtMost) {
  End end(false);
  end.paths.allow_beside();
  end.reach(State::kInUse);
  end.offer(2, 1, 1);
  EXPECT_TRUE(end.failed.ok());
  end.offer(3, 1, 1);
  EXPECT_EQ(end.failed.message(), "peer offered a path (epoch 3) out of turn");
}

TEST_F(Beside, NothingIsSetUpBesideForAPeerThatDoesNotKnowIt) {
  End end(true);
  end.reach(State::kFenced);
  end.drained = false;
  end.fence_ack();
  end.epoch = 2;
  prove(end, *end.paths.slot());
  ASSERT_EQ(end.paths.state(), State::kInUse);
  end.pass(std::chrono::seconds(3600));
  EXPECT_EQ(end.paths.beside(), nullptr);
}

TEST_F(Beside, ASessionThatEndsStaysWhereItIs) {
  for (const bool proved : {false, true}) {
    End end(true);
    fall_back(end);
    if (proved) look(end);
    end.paths.stay();
    if (proved) {
      prove(end, *end.paths.beside());
    } else {
      end.pass(std::chrono::seconds(3600));
      EXPECT_EQ(end.paths.beside(), nullptr);
    }
    EXPECT_EQ(end.paths.state(), State::kInUse);
    EXPECT_EQ(end.lost, 1);
  }
}

TEST_F(Beside, TheBestIsNotLookedFor) {
  End end(true);
  end.paths.allow_beside();
  end.reach(State::kInUse);
  end.pass(std::chrono::seconds(3600));
  EXPECT_EQ(end.paths.beside(), nullptr);
}

}  // namespace
}  // namespace fairlead::datapath::path_test
