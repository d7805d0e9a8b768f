#include "datapath/session/path_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;
using State = PathState;
using What = PathEvent;

/// The paths here tell nobody.
class Nobody final : public PathEvents {
  void on_ready(Path&) noexcept override {}
  void on_completion(Path&, std::uint64_t, Code) noexcept override {}
  void on_message(Path&, std::span<const std::byte>) noexcept override {}
  void on_notification(Path&, std::uint32_t) noexcept override {}
  void on_down(Path&, Code, std::string_view) noexcept override {}
} nobody;

/// Takes everything, and is drained when the test says so.
class FakePath final : public Path {
 public:
  explicit FakePath(bool& drained) : Path(nobody), drained_(drained) {}
  [[nodiscard]] std::string local_description() const override { return "fake"; }
  Status connect(std::string_view peer) override {
    return peer == "bad" ? Status(Code::kDataLoss, "not a description") : Status();
  }
  std::size_t post(std::span<const WorkRequest> requests) noexcept override { return requests.size(); }
  void close() noexcept override {}
  [[nodiscard]] bool drained() const noexcept override { return drained_; }
  [[nodiscard]] std::string describe() const override { return "a path"; }

 private:
  bool& drained_;
};

class FakeEndpoint final : public Endpoint {
 public:
  FakeEndpoint(const bool& broken, bool& drained) : broken_(broken), drained_(drained) {}
  Result<std::unique_ptr<Path>> open_path(const PathConfig&) override {
    if (broken_) return Status(Code::kUnavailable, "no more queue pairs");
    return std::unique_ptr<Path>(std::make_unique<FakePath>(drained_));
  }
  bool poll() noexcept override { return false; }
  bool arm() noexcept override { return true; }
  [[nodiscard]] int wait_fd() const noexcept override { return -1; }
  [[nodiscard]] int wait_timeout_us() const noexcept override { return -1; }

 private:
  const bool& broken_;
  bool& drained_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(std::string name, bool& drained) : name_(std::move(name)), drained_(drained) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] const Capabilities& capabilities() const noexcept override { return can; }
  [[nodiscard]] std::string describe() const override { return name_; }
  Result<Registration> register_memory(const MemoryDescriptor&) override { return Registration{}; }
  void deregister(const Registration&) noexcept override {}
  Result<Grant> grant(const MemoryDescriptor&) override { return Grant{}; }
  void revoke(const Grant&) noexcept override {}
  [[nodiscard]] DeviceUsage usage() const noexcept override { return {}; }
  Result<std::unique_ptr<Endpoint>> open_endpoint() override {
    return std::unique_ptr<Endpoint>(std::make_unique<FakeEndpoint>(broken, drained_));
  }

  Capabilities can;
  bool broken = false;

 private:
  std::string name_;
  bool& drained_;
};

/// One end, with two transports of one kind, whose peer is the test.
class End final : public PathUser {
 public:
  explicit End(bool active, bool failover = true)
      : paths(*this, active, {failover, milliseconds(300)}), active(active) {
    for (const char* name : {"fake:0", "fake:1"}) {
      auto made = std::make_unique<FakeDevice>(name, drained);
      fakes.push_back(made.get());
      OpenTransport open;
      open.endpoint = std::move(*made->open_endpoint());
      open.device = std::move(made);
      open.offer = {name, "fake", false};
      open_.push_back(std::move(open));
    }
    if (!active) paths.expect({{"fake:0", "fake", false}, {"fake:1", "fake", false}});
  }
  ~End() {
    paths.shut();
    paths.drop_all();
    for (const OpenTransport& open : open_) EXPECT_EQ(open.paths, 0u) << "paths are counted down";
  }

  // PathUser
  std::vector<OpenTransport>& transports() noexcept override { return open_; }
  LocalSegment probe_source(std::size_t) const noexcept override { return {}; }
  bool linked() const noexcept override { return link; }
  PathConfig path_config() override {
    EXPECT_TRUE(link);
    return {};
  }
  Clock::time_point now() const noexcept override { return time; }
  std::string who() const override { return "peer"; }
  void send_frame(const control::Frame& frame) override { sent.push_back(frame); }
  void fail(Status status) override {
    failed = std::move(status);
    paths.shut();
  }
  void path_in_use() override { ++used; }
  void path_lost() override { ++lost; }
  void path_gone(InFlight& held) override {
    while (!held.empty()) std::ignore = held.end_oldest();
  }
  std::uint64_t received() const noexcept override { return 7; }
  std::uint64_t acknowledged() const noexcept override { return 3; }
  bool apply_received(std::uint64_t received, std::string& why) override {
    applied.push_back(received);
    why = "says nonsense";
    return received != 666;
  }
  void path_event(PathState state, PathEvent event) noexcept override { seen.insert({state, event}); }

  // What the peer does.
  void begin() { paths.begin({{0, 0, "best"}, {1, 1, "next"}}); }
  void offer(std::uint64_t number, std::uint32_t theirs = 0, std::uint32_t ours = 0, const char* text = "theirs") {
    if (paths.handle(control::PathOffer{.epoch = number,
                                        .active_transport = theirs,
                                        .passive_transport = ours,
                                        .description = text,
                                        .probe = control::Key{.address = 0, .key = 1}})) {
      epoch = std::max(epoch, number);
    }
  }
  void answer(const char* text = "theirs") {
    EXPECT_TRUE(paths.handle(
        control::PathAnswer{.epoch = epoch, .description = text, .probe = control::Key{.address = 0, .key = 1}}));
  }
  void ready() { EXPECT_TRUE(paths.handle(control::PathReady{.epoch = epoch})); }
  void says_down(Code code = Code::kUnavailable) {
    EXPECT_TRUE(
        paths.handle(control::PathDown{.epoch = epoch, .code = static_cast<std::uint32_t>(code), .reason = "cable"}));
  }
  void fence(std::uint64_t got = 0) { EXPECT_TRUE(paths.handle(control::Fence{.epoch = epoch, .received = got})); }
  void fence_ack(std::uint64_t got = 0) {
    EXPECT_TRUE(paths.handle(control::FenceAck{.epoch = epoch, .received = got}));
  }
  void pass(milliseconds span) {
    time += span;
    paths.advance(time);
  }

  /// The shortest way there.
  void reach(State state) {
    if (state == State::kNone) return;
    epoch = 1;
    if (active) {
      begin();
    } else {
      offer(1);
    }
    if (state == State::kSettingUp) return;
    if (active) answer();
    paths.on_ready(*paths.slot());
    pass(milliseconds(1));
    paths.slot()->on_probe(Code::kOk);
    paths.slot()->on_hello(1);
    pass(milliseconds(1));
    if (state == State::kProved) return;
    ready();
    if (state == State::kInUse) return;
    paths.on_down(*paths.slot(), Code::kUnavailable, "the test says so");
    pass(milliseconds(5));
    if (state == State::kClosing) return;
    drained = true;
    pass(milliseconds(1));
  }
  /// Lets it happen, and the little time that a decision takes. False: it cannot, without a path.
  bool happens(What what) {
    const bool path = paths.slot() != nullptr;
    switch (what) {
      case What::kOffer:
        return offer(epoch + 1), true;
      case What::kAnswer:
        return answer(), true;
      case What::kConnected:
        return path && (paths.on_ready(*paths.slot()), true);
      case What::kPeerReady:
        return ready(), true;
      case What::kPeerDown:
        return says_down(), true;
      case What::kDown:
        return path && (paths.on_down(*paths.slot(), Code::kUnavailable, "cable"), pass(milliseconds(5)), true);
      case What::kTimeout:
        return pass(milliseconds(5000)), true;
      case What::kFence:
        return fence(), true;
      case What::kFenceAck:
        return fence_ack(), true;
      case What::kDrained:
        drained = true;
        return pass(milliseconds(1)), true;
      case What::kShut:
        return paths.shut(), true;
      case What::kBetter:  // takes another path (Beside, below)
        return false;
    }
    return false;
  }
  template <typename Body>
  bool last_is() const {
    return std::holds_alternative<Body>(sent.back());
  }
  template <typename Body>
  const Body& last() const {
    return std::get<Body>(sent.back());
  }

  bool drained = false, link = true;
  Clock::time_point time{std::chrono::seconds(1)};
  std::vector<FakeDevice*> fakes;
  std::vector<control::Frame> sent;
  std::vector<std::uint64_t> applied;
  Status failed;
  int used = 0, lost = 0;
  std::uint64_t epoch = 0;
  std::set<std::pair<PathState, PathEvent>> seen;

 private:
  std::vector<OpenTransport> open_;

 public:
  PathSet paths;
  const bool active;
};

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
const Table kPassiveOfOldPeer = {"PassiveOfOldPeer",
                                 false,
                                 false,
                                 {{State::kNone, /*      */ "S. .. ..... "},
                                  {State::kSettingUp, /* */ "X...NNNC..C "},
                                  {State::kProved, /*    */ "X..UNCCC..C "},
                                  {State::kInUse, /*     */ "X....C.C..C "},
                                  {State::kClosing, /*   */ "X.......... "}}};

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
  EXPECT_EQ(end.paths.left_because(), "cable");
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
  end.answer();
  end.paths.on_ready(*end.paths.slot());
  end.pass(milliseconds(1));
  end.paths.slot()->on_probe(Code::kOk);
  end.paths.slot()->on_hello(end.epoch);
  end.ready();
  end.pass(milliseconds(1));
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
  end.begin();
  end.epoch = 1;
  end.answer();
  end.paths.on_ready(*end.paths.slot());
  end.pass(milliseconds(1));
  end.paths.slot()->on_probe(Code::kOk);
  end.paths.slot()->on_hello(1);
  end.ready();
  end.pass(milliseconds(1));
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

TEST(PathSet, AnUnbelievableFenceEndsTheSession) {
  End end(false);
  end.reach(State::kInUse);
  end.fence(666);
  end.drained = true;
  end.pass(milliseconds(1));
  EXPECT_EQ(end.failed.message(), "peer says nonsense");
}

// ---- a better path beside the one in use ---------------------------------------------------------------------------

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
  /// All that an end is to see of a path before it is used.
  void prove(End& end, PathSlot& slot) {
    if (end.active) end.answer();
    end.paths.on_ready(slot);
    end.pass(milliseconds(1));
    slot.on_probe(Code::kOk);
    slot.on_hello(slot.epoch);
    end.ready();
    end.pass(milliseconds(1));
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
  EXPECT_EQ(end.paths.left_because(), "fake:0 works again");
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

// ---- a path that stands still --------------------------------------------------------------------------------------

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
      end.answer();
      end.paths.on_ready(*end.paths.slot());
      end.pass(milliseconds(1));
      end.paths.slot()->on_probe(Code::kOk);
      end.paths.slot()->on_hello(2);
      end.ready();
      end.pass(milliseconds(1));
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
}  // namespace fairlead::datapath
