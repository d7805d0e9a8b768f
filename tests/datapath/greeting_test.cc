// Who is at the other end: both show one key, and nobody else can.
#include "datapath/identity/greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::datapath {
namespace {

using testing::HasSubstr;

Principals principals(const std::string& text) {
  auto known = Principals::parse(text, "keys");
  EXPECT_TRUE(known) << known.error().to_string();
  return *std::move(known);
}

std::string key(char digit) { return std::string(64, digit); }
std::string nonce(char byte) { return std::string(Greeting::kNonceBytes, byte); }

const Principals& trainer() {
  static const Principals kKnown = principals("trainer " + key('1'));
  return kKnown;
}
const Principals& both() {
  static const Principals kKnown = principals("trainer " + key('1') + "\nstore " + key('2'));
  return kKnown;
}

/// Up to the accepting end's verdict on who connects.
struct Meeting {
  Meeting(const Principals& here, const std::string& own, const Principals& there, bool anonymous = false)
      : connecting(here, own, false), accepting(there, "", anonymous) {
    connecting.introduce(hello, nonce('c'));
    heard = accepting.hear(hello);
  }
  Result<control::Proof> prove() { return connecting.answer(accepting.challenge(nonce('a'))); }

  Greeting connecting, accepting;
  control::Hello hello;
  Status heard;
};

TEST(Greeting, TwoEndsWithOneKeyKnowEachOther) {
  Meeting meeting(trainer(), "trainer", both());
  EXPECT_EQ(meeting.hello.principal, "trainer");
  ASSERT_EQ(meeting.heard.code(), Code::kUnavailable) << "not believed without a proof";
  EXPECT_EQ(meeting.accepting.principal(), "");
  const auto proof = meeting.prove();
  ASSERT_TRUE(proof) << proof.error().to_string();
  ASSERT_TRUE(meeting.accepting.check(*proof).ok());
  EXPECT_EQ(meeting.accepting.principal(), "trainer");
  control::Hello answer;
  meeting.accepting.confirm(answer);
  EXPECT_NE(answer.proof, proof->digest) << "nobody's words can be sent back to him";
  ASSERT_TRUE(meeting.connecting.check(answer).ok());
  EXPECT_EQ(meeting.connecting.principal(), "trainer");
}

TEST(Greeting, AnonymousEndsMeetAsBefore) {
  Meeting meeting(Principals(), "", Principals());
  EXPECT_TRUE(meeting.hello.principal.empty() && meeting.hello.nonce.empty());
  EXPECT_TRUE(meeting.heard.ok());
  control::Hello answer;
  meeting.accepting.confirm(answer);
  EXPECT_TRUE(answer.proof.empty());
  EXPECT_TRUE(meeting.connecting.check(answer).ok());
  EXPECT_TRUE(Meeting(Principals(), "", both(), true).heard.ok());
  const Status refused = Meeting(Principals(), "", both()).heard;
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("takes no anonymous peers"));
  EXPECT_THAT(Meeting(trainer(), "trainer", Principals()).heard.message(), HasSubstr("has no keys file"));
}

// The words are the same, so that names cannot be found out.
TEST(Greeting, AnotherKeyAndANameThatNobodyHasAreRefusedAlike) {
  const Principals wrong = principals("trainer " + key('3')), stranger = principals("ghost " + key('0'));
  for (const auto& [known, name] : {std::pair<const Principals&, std::string>{wrong, "trainer"}, {stranger, "ghost"}}) {
    Meeting meeting(known, name, both(), true);
    ASSERT_EQ(meeting.heard.code(), Code::kUnavailable);
    const Status verdict = meeting.accepting.check(*meeting.prove());
    EXPECT_EQ(verdict.code(), Code::kPermissionDenied);
    EXPECT_THAT(verdict.message(), HasSubstr("'" + name + "' did not show a key that is known here"));
    EXPECT_EQ(meeting.accepting.principal(), "");
  }
  // Not even by the key that stands in for those that nobody has.
  const Principals zeroes = principals("ghost " + key('0'));
  Meeting meeting(zeroes, "ghost", both());
  EXPECT_FALSE(meeting.accepting.check(*meeting.prove()).ok());
}

TEST(Greeting, APrincipalCannotPassAsAnother) {
  const Principals own = principals("trainer " + key('1'));
  Meeting meeting(own, "trainer", both());
  meeting.hello.principal = "store";  // with trainer's key
  ASSERT_EQ(meeting.accepting.hear(meeting.hello).code(), Code::kUnavailable);
  EXPECT_FALSE(meeting.accepting.check(*meeting.prove()).ok());
}

TEST(Greeting, WhatWasSaidOnceProvesNothingAgain) {
  Meeting heard(trainer(), "trainer", both());
  const control::Proof proof = *heard.prove();
  control::Hello answer;
  ASSERT_TRUE(heard.accepting.check(proof).ok());
  heard.accepting.confirm(answer);

  Greeting accepting(both(), "", false);  // the same hello, another challenge
  ASSERT_EQ(accepting.hear(heard.hello).code(), Code::kUnavailable);
  static_cast<void>(accepting.challenge(nonce('x')));
  EXPECT_FALSE(accepting.check(proof).ok());

  Greeting connecting(trainer(), "trainer", false);  // another hello, the same challenge and answer
  control::Hello hello;
  connecting.introduce(hello, nonce('y'));
  ASSERT_TRUE(connecting.answer({.nonce = nonce('a')}));
  EXPECT_FALSE(connecting.check(answer).ok());
}

TEST(Greeting, AServerWithoutTheKeyIsNotBelieved) {
  for (const bool challenges : {false, true}) {
    Greeting connecting(trainer(), "trainer", false);
    control::Hello hello;
    connecting.introduce(hello, nonce('c'));
    control::Hello answer;
    answer.proof = std::string(32, '\0');
    if (challenges) answer.proof = connecting.answer({.nonce = nonce('s')})->digest;  // its own words back
    const Status verdict = connecting.check(answer);
    EXPECT_EQ(verdict.code(), Code::kPermissionDenied);
    EXPECT_THAT(verdict.message(), HasSubstr("did not show that it has the key of 'trainer'"));
    EXPECT_EQ(connecting.principal(), "");
  }
}

// It challenged, and refused: the session goes on at the peer's next place.
TEST(Greeting, WhoWasLeftIsForgotten) {
  Greeting connecting(trainer(), "trainer", false), first(both(), "", false), second(both(), "", false);
  control::Hello hello;
  connecting.introduce(hello, nonce('c'));
  ASSERT_EQ(first.hear(hello).code(), Code::kUnavailable);
  ASSERT_TRUE(connecting.answer(first.challenge(nonce('a'))));

  connecting.introduce(hello, nonce('d'));
  ASSERT_EQ(second.hear(hello).code(), Code::kUnavailable);
  const auto proof = connecting.answer(second.challenge(nonce('b')));
  ASSERT_TRUE(proof) << proof.error().to_string();
  ASSERT_TRUE(second.check(*proof).ok());
  control::Hello answer;
  second.confirm(answer);
  EXPECT_TRUE(connecting.check(answer).ok());
  EXPECT_EQ(connecting.principal(), "trainer");
  connecting.introduce(hello, nonce('e'));
  EXPECT_EQ(connecting.principal(), "");
}

TEST(Greeting, NonsenseIsRefused) {
  Greeting connecting(trainer(), "trainer", false), anonymous(Principals(), "", false);
  control::Hello hello;
  connecting.introduce(hello, nonce('c'));
  EXPECT_EQ(connecting.answer({.nonce = "short"}).error().code(), Code::kDataLoss);
  ASSERT_TRUE(connecting.answer({.nonce = nonce('a')}));
  EXPECT_THAT(connecting.answer({.nonce = nonce('b')}).error().message(), HasSubstr("out of turn"));
  EXPECT_THAT(anonymous.answer({.nonce = nonce('a')}).error().message(), HasSubstr("out of turn"));
  for (const auto& [name, bytes] : {std::pair<std::string, std::string>{"a b", nonce('c')},
                                    {std::string(65, 'n'), nonce('c')},
                                    {"trainer", ""},
                                    {"trainer", nonce('c') + "c"}}) {
    Greeting accepting(both(), "", false);
    control::Hello bad;
    bad.principal = name;
    bad.nonce = bytes;
    EXPECT_EQ(accepting.hear(bad).code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace fairlead::datapath
