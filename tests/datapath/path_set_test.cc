#include "datapath/flow/path_set.h"

#include <map>

#include "base/tally.h"
#include "tests/datapath/path_set_end.h"

namespace fairlead::datapath::path_test {
namespace {

/// Where each event leads from each state: N none, S setting up, P proved, U in use, C closing, F fenced; a dot where
/// it stays; X: the session fails; a blank where the event takes a path and there is none.
struct Table {
  const char* name;
  bool active;
  bool beside;  // paths may be set up beside the one in use
  std::map<State, std::string> rows;
};
//   Offer, Answer, Connected, peer Ready, peer doWn, Down, Timeout, Fence, fence acK, drAined, sHut, Better
const Table kActive = {"Active",
                       true,
                       true,
                       {{State::kNone, /*      */ "X. .. ..... "},
                        {State::kSettingUp, /* */ "X...SSS...C "},
                        {State::kProved, /*    */ "X..UCCC...C "},
                        {State::kInUse, /*     */ "X...CC....C "},
                        {State::kClosing, /*   */ "X........F. "},
                        {State::kFenced, /*    */ "X.......S.. "}}};
const Table kPassive = {"Passive",
                        false,
                        true,
                        {{State::kNone, /*      */ "S. .. ..... "},
                         {State::kSettingUp, /* */ "X...NNNC..C "},
                         {State::kProved, /*    */ "X..UNCCC..C "},
                         {State::kInUse, /*     */ ".....C.C..C "},
                         {State::kClosing, /*   */ "........... "}}};
/// One whose peer knows no path beside another.
const Table kPassiveOfOldPeer = [] {
  Table table = kPassive;
  table.name = "PassiveOfOldPeer";
  table.beside = false;
  table.rows[State::kInUse] = "X....C.C..C ";
  table.rows[State::kClosing] = "X.......... ";
  return table;
}();

class EveryPair : public testing::TestWithParam<const Table*> {};

TEST_P(EveryPair, LeadsWhereItShould) {
  constexpr std::string_view kLetters = "NSPUCF";
  for (const auto& [state, row] : GetParam()->rows) {
    for (std::size_t i = 0; i < kPathEvents; ++i) {
      const What what = static_cast<What>(i);
      SCOPED_TRACE(std::string(to_string(state)) + " and " + std::string(to_string(what)));
      End end(GetParam()->active);
      if (GetParam()->beside) end.paths.allow_beside();
      end.reach(state);
      ASSERT_EQ(end.paths.state(), state);
      const bool possible = end.happens(what);
      ASSERT_EQ(possible, row[i] != ' ');
      if (!possible) continue;
      EXPECT_EQ(!end.failed.ok(), row[i] == 'X') << end.failed.message();
      if (row[i] == 'X') continue;
      const State after = row[i] == '.' ? state : static_cast<State>(kLetters.find(row[i]));
      EXPECT_EQ(to_string(end.paths.state()), to_string(after));
      // A death that goes unnoticed, or a look at the time that decides nothing, is none of the set's events.
      if (what != What::kTimeout && what != What::kDrained) {
        EXPECT_TRUE(end.seen.contains({state, what}));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Role, EveryPair, testing::Values(&kActive, &kPassive, &kPassiveOfOldPeer),
                         [](const auto& made) { return std::string(made.param->name); });

// ---- what is said on the way ---------------------------------------------------------------------------------------

TEST(PathSet, ActiveOffersProvesAndIsUsed) {
  End end(true);
  end.begin();
  ASSERT_EQ(end.sent.size(), 1u);
  EXPECT_EQ(end.last<control::PathOffer>().epoch, 1u);
  EXPECT_EQ(end.last<control::PathOffer>().description, "fake");
  end.epoch = 1;
  end.answer();
  end.paths.on_ready(*end.paths.slot());
  end.ready();  // the peer was faster: its word is kept
  end.pass(milliseconds(1));
  end.paths.slot()->on_hello(2);  // of another path
  end.paths.slot()->on_probe(Code::kOk);
  end.pass(milliseconds(1));
  EXPECT_EQ(end.paths.state(), State::kSettingUp) << "nothing has arrived from the peer";
  end.paths.slot()->on_hello(1);
  end.pass(milliseconds(1));
  EXPECT_TRUE(end.last<control::PathReady>().one_sided);
  EXPECT_EQ(end.used, 1);
  EXPECT_EQ(end.paths.explain(), "fake:0 (a path): best; fake:1: ranks below");
}

// Messages and control frames come by different ways, and either may be looked at first.
TEST(PathSet, APathTakesNoMoreThanItAndTheDeviceDo) {
  for (const auto& [device, both] : {std::pair(64U, 5U), std::pair(3U, 3U)}) {
    End end(true);
    end.fakes[0]->can.max_outstanding = device;
    end.reach(State::kInUse);
    EXPECT_EQ(end.paths.slot()->can.max_outstanding, both);
  }
}

TEST(PathSet, WhatComesOverAProvedPathSaysThatThePeerIsReady) {
  for (const bool active : {true, false}) {
    End end(active);
    end.reach(State::kSettingUp);
    EXPECT_FALSE(end.paths.may_carry(*end.paths.slot())) << "nobody was told that it is ready here";
    EXPECT_FALSE(end.paths.slot()->peer_ready);
    end.prove(*end.paths.slot());
    ASSERT_EQ(end.paths.state(), State::kProved);
    EXPECT_TRUE(end.paths.may_carry(*end.paths.slot()));
    EXPECT_EQ(end.paths.state(), State::kInUse);
    EXPECT_EQ(end.used, 1);
    end.ready();  // by which time it is known
    EXPECT_TRUE(end.paths.may_carry(*end.paths.slot()));
    EXPECT_EQ(end.used, 1);
  }
}

// It had our word, and may have used the path: the rest of that comes while it is closed.
TEST(PathSet, WhatWasUnderWayComesOverAPathThatIsClosed) {
  End end(false);
  end.reach(State::kProved);
  end.fence();
  ASSERT_EQ(end.paths.state(), State::kClosing);
  EXPECT_TRUE(end.paths.may_carry(*end.paths.slot()));
  EXPECT_EQ(end.paths.state(), State::kClosing);
  EXPECT_EQ(end.used, 0);
  End early(false);
  early.reach(State::kSettingUp);
  early.fence();
  ASSERT_EQ(early.paths.state(), State::kClosing);
  EXPECT_FALSE(early.paths.may_carry(*early.paths.slot())) << "it never had our word";
}

TEST(PathSet, WithoutAProvenWriteAPathIsStaged) {
  End end(true);
  end.begin();
  end.epoch = 1;
  end.answer();
  end.paths.on_ready(*end.paths.slot());
  end.pass(milliseconds(1));
  end.paths.slot()->on_hello(1);
  end.pass(milliseconds(1900));
  EXPECT_EQ(end.paths.state(), State::kSettingUp);
  end.pass(milliseconds(200));
  ASSERT_EQ(end.paths.state(), State::kProved);
  EXPECT_FALSE(end.last<control::PathReady>().one_sided);
  EXPECT_THAT(end.paths.explain(), testing::HasSubstr("staged"));
}

TEST(PathSet, FailsWhenNoCandidateWorksAndNamesEach) {
  End end(true);
  end.fakes[0]->broken = true;
  end.begin();
  EXPECT_EQ(end.last<control::PathOffer>().active_transport, 1u);
  end.epoch = 2;
  end.answer("bad");
  EXPECT_EQ(end.last<control::PathDown>().reason, "not a description");
  EXPECT_EQ(end.failed.message(), "no path to peer: fake:0: no more queue pairs; fake:1: not a description");
  EXPECT_EQ(end.failed.code(), Code::kUnavailable);
}

// Found as a crash, once in half a million schedules: an end that stood still heard, all at once, that the path it was
// setting up was down, the goodbye, and the end of the control connection.
TEST(PathSet, WithoutAControlConnectionNoOtherPathIsSetUp) {
  End end(true);
  end.reach(State::kSettingUp);
  end.link = false;
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "closed");
  end.pass(milliseconds(5));
  EXPECT_EQ(end.paths.state(), State::kNone);
  EXPECT_FALSE(end.last_is<control::PathOffer>());
  end.pass(milliseconds(5000));
  EXPECT_EQ(end.paths.state(), State::kNone);
  EXPECT_TRUE(end.failed.ok());
}

TEST(PathSet, WhatIsOfAnotherEpochIsNotHeard) {
  End end(true);
  end.reach(State::kProved);
  end.epoch = 9;
  end.ready();
  end.says_down();
  EXPECT_EQ(end.paths.state(), State::kProved);
  EXPECT_TRUE(end.failed.ok());
}

TEST(PathSet, ActiveFencesSaysWhatItGotAndGoesToTheNextTransport) {
  End end(true);
  end.reach(State::kInUse);
  const std::uint64_t deaths = tally().path_deaths.get(Code::kUnavailable);
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
  end.pass(milliseconds(1));
  EXPECT_EQ(end.lost, 0) << "a goodbye may be on its way";
  end.pass(milliseconds(5));
  EXPECT_EQ(end.lost, 1);
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_TRUE(end.last_is<control::Fence>());
  EXPECT_EQ(end.last<control::Fence>().epoch, 1u);
  EXPECT_EQ(end.last<control::Fence>().received, 7u);
  end.fence_ack(5);
  EXPECT_THAT(end.applied, testing::ElementsAre(5));
  EXPECT_EQ(end.last<control::PathOffer>().active_transport, 1u) << "the cable was the first one's";
  EXPECT_EQ(end.paths.left_because(), std::pair(Code::kUnavailable, std::string_view("cable")));
  EXPECT_EQ(tally().path_deaths.get(Code::kUnavailable), deaths + 1);
}

TEST(PathSet, AnOperationThatIsRefusedDoesNotSpeakAgainstTheTransport) {
  End end(true);
  end.reach(State::kInUse);
  end.paths.on_down(*end.paths.slot(), Code::kProtectionError, "refused");
  end.pass(milliseconds(5));
  end.drained = true;
  end.pass(milliseconds(1));
  end.fence_ack();
  EXPECT_EQ(end.last<control::PathOffer>().active_transport, 0u);
}

/// A path over the only candidate comes in use, and the peer says that it is dead.
void live_and_die(End& end, int round) {
  ASSERT_TRUE(end.last_is<control::PathOffer>()) << round;
  end.epoch = end.last<control::PathOffer>().epoch;
  end.drained = false;
  end.prove(*end.paths.slot());
  end.ready();
  ASSERT_EQ(end.used, round);
  end.says_down(Code::kPeerDied);
  end.drained = true;
  end.pass(milliseconds(1));
  end.fence_ack(5);
}

TEST(PathSet, TheOnlyTransportIsTriedAgainAfterAWhile) {
  End end(true);
  end.paths.begin({{0, 0, "only"}});
  live_and_die(end, 1);
  EXPECT_EQ(end.paths.state(), State::kNone);
  EXPECT_TRUE(end.failed.ok()) << end.failed.message();
  EXPECT_FALSE(end.last_is<control::PathOffer>());
  end.pass(Trials::kFirstPause);
  ASSERT_TRUE(end.last_is<control::PathOffer>());
  EXPECT_EQ(end.last<control::PathOffer>().epoch, 2u);
}

TEST(PathSet, ATransportThatFailsAgainAndAgainIsGivenUp) {
  End end(true);
  end.paths.begin({{0, 0, "only"}});
  for (unsigned round = 1; round <= Trials::kMostFailures; ++round) {
    ASSERT_TRUE(end.failed.ok()) << end.failed.message();
    live_and_die(end, static_cast<int>(round));
    if (HasFatalFailure()) return;
    end.pass(Trials::kFirstPause * (1 << Trials::kMostFailures));
  }
  EXPECT_EQ(end.failed.code(), Code::kUnavailable);
  EXPECT_EQ(end.failed.message(), "no path to peer: fake:0: the peer says: cable");
}

TEST(PathSet, WithoutFailoverTheSessionEnds) {
  End end(true, false);
  end.reach(State::kInUse);
  ASSERT_EQ(end.used, 1);
  end.says_down(Code::kPeerDied);
  EXPECT_EQ(end.failed.code(), Code::kPeerDied);
  EXPECT_EQ(end.failed.message(), "fake:0 to peer died: the peer says: cable; failover is off");
}

TEST(PathSet, PassiveAnswersAFenceOnlyWhenDrained) {
  End end(false);
  end.reach(State::kInUse);
  end.fence(4);
  end.pass(milliseconds(1));
  EXPECT_FALSE(end.last_is<control::FenceAck>());
  end.drained = true;
  end.pass(milliseconds(1));
  ASSERT_TRUE(end.last_is<control::FenceAck>());
  EXPECT_EQ(end.last<control::FenceAck>().received, 7u);
  EXPECT_THAT(end.applied, testing::ElementsAre(4));
  EXPECT_EQ(end.paths.state(), State::kNone);
  end.offer(2);
  EXPECT_TRUE(end.last_is<control::PathAnswer>());
}

TEST(PathSet, PassiveTellsADeathAndWaitsForTheFence) {
  End end(false);
  end.reach(State::kInUse);
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
  end.pass(milliseconds(5));
  EXPECT_EQ(end.last<control::PathDown>().reason, "cable");
  end.drained = true;
  end.pass(milliseconds(1));
  EXPECT_EQ(end.paths.state(), State::kClosing);
  end.fence();
  end.pass(milliseconds(1));
  EXPECT_EQ(end.paths.state(), State::kNone);
}

// The active end had not proved it, so it has nothing to fence: it offers the next.
TEST(PathSet, ADeathBeforeTheActiveEndUsedThePathTakesNoFence) {
  End end(false);
  end.reach(State::kProved);
  end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
  end.pass(milliseconds(5));
  ASSERT_EQ(end.paths.state(), State::kClosing);
  end.offer(2);
  EXPECT_THAT(end.applied, testing::ElementsAre(3)) << "what was acknowledged, no more";
  EXPECT_TRUE(end.last_is<control::PathAnswer>());
}

TEST(PathSet, AnOfferCannotStandInForTheFenceOfAPathThatThePeerMayHaveUsed) {
  for (const bool before : {true, false}) {  // the peer's "ready" came before the death, or after it
    End end(false);
    end.reach(State::kProved);
    if (before) end.ready();
    end.paths.on_down(*end.paths.slot(), Code::kUnavailable, "cable");
    end.pass(milliseconds(5));
    if (!before) end.ready();
    ASSERT_EQ(end.paths.state(), State::kClosing);
    end.offer(2);
    EXPECT_EQ(end.failed.message(), "peer offered a path (epoch 2) out of turn");
    EXPECT_TRUE(end.applied.empty());
  }
}

TEST(PathSet, AnOfferOfWhatIsNotThereIsTurnedDown) {
  for (const auto& [theirs, ours] : {std::pair(0u, 5u), std::pair(5u, 0u)}) {
    End end(false);
    end.offer(1, theirs, ours);
    EXPECT_EQ(end.last<control::PathDown>().code, static_cast<std::uint32_t>(Code::kInvalidArgument));
    EXPECT_TRUE(end.failed.ok());
    end.offer(2);
    EXPECT_TRUE(end.last_is<control::PathAnswer>());
  }
}

TEST(PathSet, WhoWithholdsItsWordOfAFenceIsLeft) {
  for (const bool active : {true, false}) {
    SCOPED_TRACE(active ? "active" : "passive");
    End end(active);
    end.reach(State::kClosing);
    end.pass(milliseconds(60'000));
    EXPECT_TRUE(end.failed.ok()) << "the path itself is not drained";
    end.drained = true;
    end.pass(milliseconds(1));
    end.pass(milliseconds(9'000));
    EXPECT_TRUE(end.failed.ok()) << end.failed.message();
    end.link = false;
    end.pass(milliseconds(60'000));
    EXPECT_TRUE(end.failed.ok()) << "no word can come over a control connection that is cut";
    end.link = true;
    end.pass(milliseconds(9'000));
    EXPECT_TRUE(end.failed.ok()) << end.failed.message();
    end.pass(milliseconds(2'000));
    EXPECT_EQ(end.failed.code(), Code::kUnavailable);
    EXPECT_THAT(end.failed.message(), testing::HasSubstr("has not said within 10000 ms (peer_timeout)"));
    EXPECT_THAT(end.failed.message(), testing::HasSubstr("fake:0"));
  }
}

TEST(PathSet, AnUnbelievableFenceEndsTheSession) {
  End end(false);
  end.reach(State::kInUse);
  end.fence(666);
  end.drained = true;
  end.pass(milliseconds(1));
  EXPECT_EQ(end.failed.message(), "peer says nonsense");
}

}  // namespace
}  // namespace fairlead::datapath::path_test
