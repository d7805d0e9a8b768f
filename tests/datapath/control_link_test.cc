// A session's control connection on streams that say what the test writes, and a clock that it moves.
#include "datapath/session/control_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <functional>

#include "tests/datapath/fake_host.h"
#include "tests/datapath/framed.h"

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class ControlLinkTest : public testing::Test, private LinkUser {
 protected:
  void TearDown() override {
    link.close();
    host.lane().stop();
  }
  /// A link to a peer that may be silent for 300 ms.
  void adopt_first() {
    host.settings.peer_timeout = milliseconds(300);
    link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  }
  void dial(std::vector<std::string> addresses) {
    std::vector<Place> places;
    for (std::string& address : addresses) places.push_back({std::move(address), 7400, places.size()});
    link.dial(std::move(places), host.time + milliseconds(900));
  }

  FakeHost host;
  Script first, second;
  int ups = 0;
  std::vector<control::Frame> heard;
  std::function<void()> on_heard = [] {};
  std::optional<Status> refused, lost;
  ControlLink link{host, *this};

 private:
  void link_up() override { ++ups; }
  void link_refused(const Status& why) override { refused = why; }
  void link_heard(const control::Frame& frame) override {
    heard.push_back(frame);
    on_heard();
  }
  void link_lost(const Status& why) override {
    EXPECT_FALSE(link.exists());
    lost = why;
  }
};

TEST_F(ControlLinkTest, TriesTheNextAddressWhenOneRefuses) {
  first.dial = Script::Dial::kRefused;
  host.dials = {Status(Code::kUnavailable, "no route to host"), &first, &second};
  dial({"a", "b", "c"});
  EXPECT_EQ(host.dialed, (std::vector<std::string>{"a", "b"})) << "what cannot be dialed is passed over at once";
  EXPECT_TRUE(link.dialing());
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(host.dialed.back(), "c");
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(ups, 1);
  EXPECT_FALSE(link.dialing());
  EXPECT_FALSE(refused);
  second.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 3});
  link.on_ready(EPOLLIN);
  ASSERT_EQ(heard.size(), 1U);
}

TEST_F(ControlLinkTest, SaysOfEachAddressWhyItDidNotAnswer) {
  first.dial = Script::Dial::kRefused;
  host.dials = {&first, Status(Code::kUnavailable, "no route to host")};
  dial({"a", "b"});
  link.on_ready(EPOLLOUT);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message(), HasSubstr("a: connection refused; b: no route to host"));
  EXPECT_FALSE(link.exists());
  EXPECT_TRUE(host.watched.empty());
}

TEST_F(ControlLinkTest, WhatCannotBeWatchedIsNotDialed) {
  host.may_watch = {Code::kResourceExhausted, "no room"};
  host.dials = {&first, &second};
  dial({"a", "b"});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code(), Code::kResourceExhausted);
  EXPECT_THAT(refused->message(), HasSubstr("a: no room; b: no room"));
  EXPECT_FALSE(link.exists());
}

TEST_F(ControlLinkTest, AConnectionThatCannotBeWatchedIsTriedAgainAndThenLost) {
  for (const bool later : {true, false}) {
    host.may_watch = {Code::kResourceExhausted, "no room"};
    link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
    EXPECT_TRUE(link.pending()) << "or nobody would look at it";
    EXPECT_FALSE(lost) << "nobody is told in the middle of something";
    if (later) host.may_watch = {};
    first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 3});
    link.on_ready(EPOLLIN);
    EXPECT_FALSE(link.pending());
    EXPECT_EQ(host.watched.size(), later ? 1U : 0U);
    EXPECT_EQ(heard.size(), 1U);
    EXPECT_EQ(lost.has_value(), !later);
    link.close();
  }
  EXPECT_EQ(lost->code(), Code::kResourceExhausted);
}

TEST_F(ControlLinkTest, TheFirstToAnswerIsTaken) {
  for (const bool second_answers : {false, true}) {
    link.close();
    host.dialed.clear();
    first.dial = second.dial = Script::Dial::kPending;
    host.dials = {&first, &second};
    dial({"a", "b"});
    host.time += milliseconds(249);
    link.check_dialing(host.time);
    EXPECT_EQ(host.dialed.size(), 1U) << "a head start";
    host.time += milliseconds(1);
    link.check_dialing(host.time);
    EXPECT_EQ(host.dialed.size(), 2U);
    EXPECT_EQ(host.watched.size(), 2U);
    EXPECT_TRUE(link.dialing());
    ups = 0;
    (second_answers ? second : first).dial = Script::Dial::kStands;
    link.on_ready(EPOLLOUT);
    EXPECT_EQ(ups, 1);
    EXPECT_FALSE(link.dialing());
    EXPECT_EQ(host.watched.size(), 1U) << "the other is let go";
    (second_answers ? second : first).to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 3});
    link.on_ready(EPOLLIN);
    EXPECT_EQ(heard.size(), second_answers ? 2U : 1U);
  }
}

TEST_F(ControlLinkTest, WhoDoesNotGreetMakesRoomForTheNextPlace) {
  host.dials = {&first, &second};
  dial({"a", "b"});
  link.on_ready(EPOLLOUT);
  link.check_dialing(host.time + milliseconds(449));
  EXPECT_EQ(host.dialed.size(), 1U);
  link.check_dialing(host.time + milliseconds(450));
  EXPECT_EQ(host.dialed.size(), 2U) << "half of the time for two";
  link.on_ready(EPOLLOUT);
  link.check_dialing(host.time + milliseconds(100'000));
  EXPECT_TRUE(link.exists()) << "there is nobody to make room for";
}

TEST_F(ControlLinkTest, WhoIsOfNoUseMakesRoomForTheNextPlace) {
  host.dials = {&first, &second};
  dial({"a", "b"});
  link.on_ready(EPOLLOUT);
  ASSERT_TRUE(link.is_useless({Code::kVersionMismatch, "not a Fairlead peer"}));
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(ups, 2);
  EXPECT_FALSE(link.is_useless({Code::kVersionMismatch, "not a Fairlead peer"})) << "there is no other";
  link.greeted(true);
  EXPECT_EQ(link.places().to_look_at().front().address, "b");
  EXPECT_FALSE(refused);
}

TEST_F(ControlLinkTest, WhatWasSaidLastIsHeardBeforeTheEnd) {
  host.dials = {&first};
  dial({"a"});
  link.on_ready(EPOLLOUT);
  first.to_hear = "FAIRLEAD" + framed(control::Goodbye{.code = 0, .reason = "enough"});
  first.ended = true;
  first.send_error = ECONNRESET;
  link.send(control::Ping{.nonce = 1});
  EXPECT_FALSE(lost) << "nobody is told in the middle of something";
  link.on_ready(EPOLLOUT);  // writing fails; reading does not yet
  ASSERT_TRUE(lost);
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(std::get<control::Goodbye>(heard[0]).reason, "enough");
  EXPECT_TRUE(host.watched.empty());
}

TEST_F(ControlLinkTest, ABrokenPreambleEndsIt) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  first.to_hear = "GET / HTTP/1.1\r\n";
  link.on_ready(EPOLLIN);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->code(), Code::kVersionMismatch);
}

TEST_F(ControlLinkTest, SilenceIsAskedAboutAndThenTold) {
  adopt_first();
  host.time += milliseconds(100);
  EXPECT_FALSE(link.check_silence(host.time));
  const std::size_t before = first.said.size();
  host.time += milliseconds(1);
  EXPECT_FALSE(link.check_silence(host.time));
  EXPECT_GT(first.said.size(), before) << "a ping";
  const std::size_t asked = first.said.size();
  EXPECT_FALSE(link.check_silence(host.time)) << "and not another at once";
  EXPECT_EQ(first.said.size(), asked);
  first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 1, .reply = true});
  link.on_ready(EPOLLIN);  // a sign of life
  for (int i = 0; i < 300; ++i) {
    host.time += milliseconds(1);
    EXPECT_FALSE(link.check_silence(host.time)) << i;
  }
  host.time += milliseconds(1);
  EXPECT_FALSE(link.check_silence(host.time)) << "what has come by now is to be read first";
  EXPECT_TRUE(link.check_silence(host.time));
}

TEST_F(ControlLinkTest, WhatComesOnThePathIsASignOfLife) {
  adopt_first();
  for (int i = 0; i < 3000; ++i) {
    host.time += milliseconds(1);
    if (i % 90 == 0) link.live();
    ASSERT_FALSE(link.check_silence(host.time)) << i;
  }
  EXPECT_TRUE(first.said.empty()) << "nobody had to be asked";
}

TEST_F(ControlLinkTest, APauseOfOursIsNotHeldAgainstThePeer) {
  adopt_first();
  const std::string answer = framed(control::Ping{.nonce = 1, .reply = true});
  first.to_hear = "FAIRLEAD";
  for (int round = 0; round < 3; ++round) {
    host.time += milliseconds(5000);
    const std::size_t before = first.said.size();
    EXPECT_FALSE(link.check_silence(host.time)) << "it was not asked";
    EXPECT_GT(first.said.size(), before) << "now it is";
    for (int i = 0; i < 90; ++i) {
      host.time += milliseconds(1);
      ASSERT_FALSE(link.check_silence(host.time)) << i;
    }
    first.to_hear += answer;
    link.on_ready(EPOLLIN);
    ASSERT_FALSE(link.check_silence(host.time));
  }
}

TEST_F(ControlLinkTest, AnAnswerThatLayUnreadThroughAPauseCounts) {
  adopt_first();
  host.time += milliseconds(150);
  EXPECT_FALSE(link.check_silence(host.time));
  EXPECT_FALSE(first.said.empty()) << "asked";
  host.time += milliseconds(5000);
  EXPECT_FALSE(link.check_silence(host.time)) << "long silent, but the connection has not been read";
  first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 1, .reply = true});
  link.on_ready(EPOLLIN);
  EXPECT_FALSE(link.check_silence(host.time));
}

TEST_F(ControlLinkTest, WhoDoesNotAnswerAfterAPauseEither) {
  adopt_first();
  host.time += milliseconds(5000);
  EXPECT_FALSE(link.check_silence(host.time));
  host.time += milliseconds(100);
  EXPECT_FALSE(link.check_silence(host.time));
  EXPECT_TRUE(link.check_silence(host.time)) << "a third of peer_timeout after it was asked";
}

TEST_F(ControlLinkTest, WhoNeverReadsOverrunsIt) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  first.send_error = EAGAIN;
  const control::Refused large{.code = 1, .reason = std::string(1 << 19, 'x')};
  for (int i = 0; i < 32; ++i) {
    EXPECT_FALSE(link.overrun()) << i;
    link.send(large);
  }
  EXPECT_TRUE(link.overrun());
}

class RejoinTest : public ControlLinkTest {
 protected:
  RejoinTest() { host.settings.peer_timeout = milliseconds(1200); }
  /// Active, greeted, and then cut.
  void cut_after(const std::vector<control::Frame>& said, std::vector<std::string> places = {"a"}) {
    host.dials = {&first};
    dial(std::move(places));
    link.on_ready(EPOLLOUT);
    link.greeted(true);
    for (const control::Frame& frame : said) link.send(frame);
    first.ended = true;
    link.on_ready(EPOLLIN);
    ASSERT_TRUE(lost);
    EXPECT_EQ(lost->code(), Code::kPeerDied);
    link.rejoin();
  }
  void pass(int ms) {
    for (int i = 0; i < ms; ++i) {
      host.time += milliseconds(1);
      link.check_dialing(host.time);
    }
  }
};

TEST_F(RejoinTest, WhatThePeerDidNotHearIsSaidAgain) {
  cut_after({control::Withdrawn{.id = 1}, control::Withdrawn{.id = 2}});
  EXPECT_TRUE(link.is_cut());
  link.send(control::Withdrawn{.id = 3});
  host.dials = {&second};
  link.check_dialing(host.time);
  EXPECT_EQ(host.dialed, (std::vector<std::string>{"a", "a"}));
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(ups, 2);
  link.say(control::Resume{.session_id = 5, .nonce = {}});
  const std::string greeting = "FAIRLEAD" + framed(control::Resume{.session_id = 5, .nonce = {}});
  EXPECT_EQ(second.said, greeting) << "nothing else before the peer has shown who it is";
  const int sends = second.sends;
  ASSERT_TRUE(link.rejoined(1));
  EXPECT_FALSE(link.is_cut());
  EXPECT_EQ(second.sends, sends + 1) << "however many there are";
  EXPECT_EQ(second.said, greeting + framed(control::Withdrawn{.id = 2}) + framed(control::Withdrawn{.id = 3}));
}

// What was kept for a peer that was away is there once, and takes nobody's turn.
TEST_F(RejoinTest, WhatIsSaidAgainComesAsItIsRead) {
  constexpr std::uint32_t kFrames = 100;
  constexpr std::size_t kPiece = 128 * 1024;
  const auto frame = [](std::uint32_t i) { return control::Refused{.code = i, .reason = std::string(50'000, 'x')}; };
  cut_after({});
  for (std::uint32_t i = 0; i < kFrames; ++i) link.send(frame(i));
  host.dials = {&second};
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  second.said.clear();
  second.send_error = EAGAIN;
  ASSERT_TRUE(link.rejoined(0));
  link.send(control::Withdrawn{.id = 1});
  for (int turn = 0; turn < 10; ++turn) link.on_ready(EPOLLOUT);
  EXPECT_EQ(host.events & EPOLLOUT, EPOLLOUT);
  second.send_error = 0;
  std::string all;
  int turns = 0;
  while ((host.events & EPOLLOUT) != 0 && turns++ < 1000) {
    link.on_ready(EPOLLOUT);
    EXPECT_LE(second.said.size(), 2 * kPiece);
    EXPECT_FALSE(second.said.empty()) << "it would be woken for nothing";
    all += std::exchange(second.said, {});
  }
  link.send(control::Withdrawn{.id = 2});
  std::string due;
  for (std::uint32_t i = 0; i < kFrames; ++i) due += framed(frame(i));
  due += framed(control::Withdrawn{.id = 1});
  EXPECT_TRUE(all == due) << all.size() << " of " << due.size();
  EXPECT_EQ(second.said, framed(control::Withdrawn{.id = 2})) << "at once, when nothing waits before it";
}

TEST_F(RejoinTest, WhatIsSaidAgainBeginsAnewWithEachConnection) {
  const control::Refused large{.code = 1, .reason = std::string(200'000, 'x')};
  cut_after({large, control::Withdrawn{.id = 2}});
  Script third;
  for (Script* next : {&second, &third}) {
    host.dials = {next};
    link.check_dialing(host.time);
    link.on_ready(EPOLLOUT);
    next->said.clear();
    ASSERT_TRUE(link.rejoined(0));
    EXPECT_EQ(next->said, framed(large));
    if (next == &third) break;
    next->to_hear = "FAIRLEAD";
    next->ended = true;
    link.on_ready(EPOLLIN);
    link.rejoin();
  }
  EXPECT_TRUE(link.heard_there(2)) << "both were said once";
  EXPECT_FALSE(link.heard_there(3));
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(third.said, framed(large)) << "what was heard is not said again";
}

TEST_F(RejoinTest, WhoIsYetToBeToldMuchIsNotReadMeanwhile) {
  cut_after({});
  const control::Refused large{.code = 1, .reason = std::string(500'000, 'x')};
  for (int i = 0; i < 20; ++i) link.send(large);
  host.dials = {&second};
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(host.events & EPOLLIN, EPOLLIN) << "who it is has to be heard";
  second.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 1});
  ASSERT_TRUE(link.rejoined(0));
  EXPECT_EQ(host.events, std::uint32_t{EPOLLOUT});
  int turns = 0;
  while ((host.events & EPOLLIN) == 0 && turns++ < 100) link.on_ready(EPOLLOUT | EPOLLIN);
  EXPECT_GT(turns, 1);
  EXPECT_LT(turns, 10);
  EXPECT_EQ(heard.size(), 1U);
}

TEST_F(RejoinTest, WhatIsHeardOfStrangersCountsForNothing) {
  cut_after({});
  host.dials = {&second};
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  second.to_hear = "FAIRLEAD" + framed(control::Challenge{.nonce = "x"});
  link.on_ready(EPOLLIN);
  EXPECT_EQ(heard.size(), 1U) << "it is the session's to answer";
  EXPECT_EQ(link.heard(), 0U);
  ASSERT_TRUE(link.rejoined(0));
  second.to_hear = framed(control::Ping{.nonce = 1}) + framed(control::Heard{.count = 0});
  link.on_ready(EPOLLIN);
  EXPECT_EQ(link.heard(), 1U) << "of the connection's own nothing is counted";
}

TEST_F(RejoinTest, AttemptsPauseForLongerAndLonger) {
  cut_after({});
  const Status unreachable(Code::kUnavailable, "no route to host");
  for (int i = 0; i < 100; ++i) host.dials.emplace_back(unreachable);
  std::vector<std::size_t> attempts;
  for (int ms : {0, 10, 20, 40, 80, 160, 320, 500, 500}) {
    pass(ms - 1);
    const std::size_t before = host.dialed.size();
    if (ms != 0) pass(1);
    link.check_dialing(host.time);
    attempts.push_back(host.dialed.size() - before);
  }
  EXPECT_EQ(attempts, (std::vector<std::size_t>(9, 1)));
  EXPECT_FALSE(refused) << "it goes on";
}

TEST_F(RejoinTest, AnAttemptHasItsTime) {
  cut_after({});
  second.dial = Script::Dial::kPending;
  host.dials = {&second, &second};
  link.check_dialing(host.time);
  EXPECT_TRUE(link.dialing());
  pass(199);
  EXPECT_TRUE(link.exists()) << "a sixth of peer_timeout";
  pass(12);
  EXPECT_EQ(host.dialed.size(), 3U);
}

TEST_F(RejoinTest, WhoAnswersAndSaysNothingIsGivenUpToo) {
  cut_after({});
  host.dials = {&second, Status(Code::kUnavailable, "no route to host")};
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  pass(199);
  EXPECT_EQ(host.dialed.size(), 2U);
  pass(12);
  EXPECT_EQ(host.dialed.size(), 3U);
  EXPECT_TRUE(link.is_cut());
}

TEST_F(RejoinTest, WhereNobodyListensAnyMoreItEnds) {
  cut_after({});
  host.dials = {Status(Code::kNotFound, "connection refused")};
  link.check_dialing(host.time);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message(), HasSubstr("connection refused"));
}

TEST_F(RejoinTest, ItIsLookedForAtItsOtherPlaces) {
  cut_after({}, {"a", "b"});
  host.dials = {Status(Code::kUnavailable, "no route to host"), &second};
  link.check_dialing(host.time);
  EXPECT_EQ(host.dialed, (std::vector<std::string>{"a", "a", "b"}));
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(ups, 2);
  ASSERT_TRUE(link.rejoined(0));
  EXPECT_EQ(link.places().to_look_at().front().address, "b");
}

TEST_F(RejoinTest, WhoIsAtAPlaceAndIsNotThePeerMakesRoomForTheNext) {
  cut_after({}, {"a", "b"});
  Script third;
  host.dials = {&second, &third};
  link.check_dialing(host.time);
  link.on_ready(EPOLLOUT);
  ASSERT_TRUE(link.is_useless({Code::kNotFound, "another engine"}));
  link.check_dialing(host.time);
  EXPECT_EQ(host.dialed.back(), "b") << "in the same attempt";
  link.on_ready(EPOLLOUT);
  EXPECT_EQ(ups, 3);
  EXPECT_EQ(link.places().to_look_at().front().address, "b") << "the peer was not seen there, but another was at a";
}

// Its first word is why; what comes behind that, and the end of the connection, say nothing.
TEST_F(RejoinTest, ThatOtherEnginesAreAtAllPlacesIsTheEndAfterAWhile) {
  cut_after({}, {"a", "b"});
  std::deque<Script> scripts(200);
  for (Script& script : scripts) host.dials.emplace_back(&script);
  for (int ms = 0; ms < 2000 && !refused; ++ms) {
    pass(1);
    if (!link.dialing()) continue;
    link.on_ready(EPOLLOUT);
    ASSERT_TRUE(link.is_useless({Code::kNotFound, "another engine"}));
    ASSERT_TRUE(link.is_useless({Code::kUnavailable, "it is not the peer"}));
    scripts[host.dialed.size() - 2].ended = true;
    link.on_ready(EPOLLIN);
  }
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->message(), HasSubstr("a: another engine"));
  EXPECT_THAT(refused->message(), HasSubstr("b: another engine"));
}

TEST_F(RejoinTest, ThatAllPlacesRefuseIsNotTheEndAtOnce) {
  cut_after({}, {"a", "b"});
  for (int i = 0; i < 200; ++i) host.dials.emplace_back(Status(Code::kNotFound, "connection refused"));
  pass(190);
  EXPECT_FALSE(refused) << "it may be on its way from one to the other";
  EXPECT_GT(host.dialed.size(), 5U);
  pass(1000);
  ASSERT_TRUE(refused) << "after a sixth of peer_timeout";
  EXPECT_THAT(refused->message(), HasSubstr("a: connection refused; b: connection refused"));
}

TEST_F(RejoinTest, ThePeerIsToldWhatWasHeard) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  first.to_hear = "FAIRLEAD";
  for (int i = 0; i < 15; ++i) first.to_hear += framed(control::Withdrawn{.id = 1});
  link.on_ready(EPOLLIN);
  EXPECT_EQ(first.said.size(), 0U);
  first.to_hear = framed(control::Withdrawn{.id = 1});
  link.on_ready(EPOLLIN);
  EXPECT_THAT(first.said, HasSubstr(framed(control::Heard{.count = 16})));
  first.said.clear();
  first.to_hear = framed(control::Goodbye{.code = 0, .reason = std::string(70'000, 'x')});
  link.on_ready(EPOLLIN);
  EXPECT_EQ(first.said, framed(control::Heard{.count = 17})) << "soon, where it is much";
}

TEST_F(RejoinTest, WhoNeverSaysWhatItHeardOverrunsIt) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  const control::Refused large{.code = 1, .reason = std::string(1 << 19, 'x')};
  for (int i = 0; i < 31; ++i) link.send(large);
  EXPECT_FALSE(link.overrun());
  ASSERT_TRUE(link.heard_there(31));
  for (int i = 0; i < 31; ++i) link.send(large);
  EXPECT_FALSE(link.overrun());
  for (int i = 0; i < 2; ++i) link.send(large);
  EXPECT_TRUE(link.overrun());
}

TEST_F(RejoinTest, AConnectionOnWhichNothingAnswersIsLost) {
  constexpr milliseconds kPart(100);
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  const auto check = [&](int ms) {
    for (int i = 0; i < ms; ++i) {
      host.time += milliseconds(1);
      link.check_answers(host.time, kPart);
    }
  };
  check(500);
  EXPECT_FALSE(lost) << "nothing was said that could be answered";
  link.send(control::Withdrawn{.id = 1});
  check(100);
  const std::size_t said = first.said.size();
  check(1);
  EXPECT_GT(first.said.size(), said) << "a ping";
  first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 1, .reply = true});
  link.on_ready(EPOLLIN);
  check(500);
  EXPECT_FALSE(lost);
  link.send(control::Ping{.nonce = 1, .reply = true});
  check(500);
  EXPECT_FALSE(lost) << "an answer awaits none";
  link.send(control::Withdrawn{.id = 1});
  check(202);
  EXPECT_FALSE(lost) << "what came meanwhile is read first";
  check(1);
  ASSERT_TRUE(lost);
  EXPECT_THAT(lost->message(), HasSubstr("nothing answered"));
}

// What is said because of a frame awaits an answer of its own: that frame was none.
TEST_F(RejoinTest, WhatIsSaidInReplyAwaitsAnAnswer) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  on_heard = [this] { link.send(control::Withdrawn{.id = 1}); };
  first.to_hear = "FAIRLEAD" + framed(control::Withdrawn{.id = 2});
  link.on_ready(EPOLLIN);
  ASSERT_EQ(heard.size(), 1U);
  for (int i = 0; i < 210; ++i) {
    host.time += milliseconds(1);
    link.check_answers(host.time, milliseconds(100));
  }
  EXPECT_TRUE(lost);
}

// A page of regions over a slow network.
TEST_F(RejoinTest, AFrameMayTakeItsTimeWhileItsBytesCome) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  link.send(control::Lookup{.request = 1, .name = "x", .prefix = true, .after = {}});
  first.said.clear();
  const std::string page = framed(control::Goodbye{.code = 0, .reason = std::string(200'000, 'x')});
  first.to_hear = "FAIRLEAD";
  for (std::size_t at = 0; at < page.size(); at += 1000) {
    first.to_hear += page.substr(at, 1000);
    link.on_ready(EPOLLIN);
    host.time += milliseconds(90);
    link.check_answers(host.time, milliseconds(100));
    ASSERT_FALSE(lost) << at;
    ASSERT_FALSE(link.check_silence(host.time)) << at;
  }
  ASSERT_EQ(heard.size(), 1U);
  std::size_t told = 0;
  for (std::size_t at = first.said.find(framed(control::Heard{.count = 0})); at != std::string::npos;
       at = first.said.find(framed(control::Heard{.count = 0}), at + 1)) {
    ++told;
  }
  EXPECT_EQ(told, 3U) << "who sends it hears that it comes";
}

TEST_F(RejoinTest, APauseOfOursIsNotHeldAgainstTheConnection) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  link.greeted(true);
  link.send(control::Withdrawn{.id = 1});
  host.time += milliseconds(5000);
  link.check_answers(host.time, milliseconds(100));
  EXPECT_FALSE(lost) << "it was not asked";
  host.time += milliseconds(5000);
  link.check_answers(host.time, milliseconds(100));
  EXPECT_FALSE(lost) << "it was not read";
  first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 1, .reply = true});
  link.on_ready(EPOLLIN);
  link.check_answers(host.time, milliseconds(100));
  EXPECT_FALSE(lost);
}

TEST_F(ControlLinkTest, ClosedItHearsNothing) {
  link.adopt(std::make_unique<ControlChannel>(std::make_unique<ScriptedStream>(first), false));
  EXPECT_EQ(host.events & EPOLLIN, static_cast<std::uint32_t>(EPOLLIN));
  link.close();
  EXPECT_TRUE(host.watched.empty());
  first.to_hear = "FAIRLEAD" + framed(control::Ping{.nonce = 3});
  link.on_ready(EPOLLIN);
  link.send(control::Ping{.nonce = 4});
  link.check_dialing(host.time);
  EXPECT_TRUE(heard.empty());
  EXPECT_FALSE(lost);
  EXPECT_TRUE(first.said.empty());
}

}  // namespace
}  // namespace fairlead::datapath
