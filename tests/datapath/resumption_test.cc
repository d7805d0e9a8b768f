// Who may go on with a session, and who may not.
#include "datapath/identity/resumption.h"

#include <gtest/gtest.h>

#include <functional>

namespace fairlead::datapath {
namespace {

const std::string kSecret(Resumption::kSecretBytes, 's'), kNonce(Resumption::kNonceBytes, 'n'),
    kOtherNonce(Resumption::kNonceBytes, 'o'), kHex32 = std::string(64, 'a');

Principals known() { return *Principals::parse("alice " + kHex32 + "\nbob " + std::string(64, 'b') + "\n", "keys"); }

/// Both ends of one session.
struct Ends {
  Resumption connecting, accepting;
  explicit Ends(const std::string& principal = {}) {
    const Principals keys = principal.empty() ? Principals() : known();
    connecting.begin(keys, principal, kSecret);
    accepting.begin(keys, principal, kSecret);
  }
};

TEST(Resumption, BothEndsShowWhoTheyAre) {
  for (const char* principal : {"", "alice"}) {
    Ends ends(principal);
    for (std::uint64_t attempt = 1; attempt <= 3; ++attempt) {
      const control::Resume asked = ends.connecting.ask(77, 5, kNonce);
      EXPECT_EQ(asked.attempt, attempt);
      const Result<control::Proof> proof = ends.connecting.answer({.nonce = kOtherNonce});
      ASSERT_TRUE(proof);
      ASSERT_TRUE(ends.accepting.check(asked, kOtherNonce, *proof).ok());
      const control::Resumed resumed = ends.accepting.confirm(asked, kOtherNonce, 9);
      EXPECT_EQ(resumed.heard, 9U);
      EXPECT_TRUE(ends.connecting.check(resumed).ok());
    }
  }
}

/// Asks as `asker`, is challenged, and shows the proof of `shower` with what `change` makes of it.
Status asked_of(Resumption& accepting, Resumption& asker,
                const std::function<void(control::Resume&, std::string& nonce, control::Proof&)>& change) {
  control::Resume asked = asker.ask(77, 5, kNonce);
  control::Proof proof = *asker.answer({.nonce = kOtherNonce});
  std::string nonce = kOtherNonce;
  change(asked, nonce, proof);
  return accepting.check(asked, nonce, proof);
}

TEST(Resumption, WhoHasNotTheSecretIsRefused) {
  Ends ends;
  const auto as_is = [](auto&, auto&, auto&) {};
  EXPECT_TRUE(asked_of(ends.accepting, ends.connecting, as_is).ok());
  Resumption guesser;
  guesser.begin({}, "", std::string(Resumption::kSecretBytes, 'g'));
  EXPECT_EQ(asked_of(ends.accepting, guesser, as_is).code(), Code::kPermissionDenied);
  Resumption never;
  EXPECT_EQ(asked_of(never, ends.connecting, as_is).code(), Code::kPermissionDenied) << "it cannot be resumed at all";
  EXPECT_FALSE([&] {
    Resumption empty;
    (void)empty.ask(77, 0, kNonce);
    return empty.answer({.nonce = kOtherNonce}).has_value();
  }());
}

TEST(Resumption, WhoOverheardTheSecretOfAPrincipalsSessionIsRefused) {
  Ends ends("alice");
  Resumption eavesdropper;
  eavesdropper.begin({}, "", kSecret);
  Resumption other_principal;
  other_principal.begin(known(), "bob", kSecret);
  const auto as_is = [](auto&, auto&, auto&) {};
  EXPECT_EQ(asked_of(ends.accepting, eavesdropper, as_is).code(), Code::kPermissionDenied);
  EXPECT_EQ(asked_of(ends.accepting, other_principal, as_is).code(), Code::kPermissionDenied);
  EXPECT_TRUE(asked_of(ends.accepting, ends.connecting, as_is).ok());
}

TEST(Resumption, AProofIsGoodForWhatItWasMadeFor) {
  Ends ends;
  using Change = std::function<void(control::Resume&, std::string&, control::Proof&)>;
  const Change changes[] = {[](auto& asked, auto&, auto&) { ++asked.session_id; },
                            [](auto& asked, auto&, auto&) { ++asked.attempt; },
                            [](auto& asked, auto&, auto&) { ++asked.heard; },
                            [](auto& asked, auto&, auto&) { asked.nonce[0] = 'x'; },
                            [](auto& asked, auto&, auto&) { asked.nonce.clear(); },
                            [](auto&, auto& nonce, auto&) { nonce = kNonce; },
                            [](auto&, auto&, auto& proof) { proof.digest.pop_back(); },
                            [](auto&, auto&, auto& proof) { proof.digest.clear(); },
                            [](auto&, auto&, auto& proof) { proof.digest[7] ^= 1; }};
  for (const Change& change : changes) {
    EXPECT_EQ(asked_of(ends.accepting, ends.connecting, change).code(), Code::kPermissionDenied)
        << &change - std::begin(changes);
  }
}

TEST(Resumption, AnAttemptThatWasOvertakenIsRefused) {
  Ends ends;
  const control::Resume first = ends.connecting.ask(77, 5, kNonce);
  const control::Proof first_proof = *ends.connecting.answer({.nonce = kOtherNonce});
  const control::Resume second = ends.connecting.ask(77, 6, kNonce);
  const control::Proof second_proof = *ends.connecting.answer({.nonce = kOtherNonce});
  ASSERT_TRUE(ends.accepting.check(second, kOtherNonce, second_proof).ok());
  (void)ends.accepting.confirm(second, kOtherNonce, 1);
  EXPECT_EQ(ends.accepting.check(first, kOtherNonce, first_proof).code(), Code::kDataLoss);
  EXPECT_EQ(ends.accepting.check(second, kOtherNonce, second_proof).code(), Code::kDataLoss) << "nor the same again";
}

TEST(Resumption, WhoAnswersMustBeTheOther) {
  Ends ends;
  const control::Resume asked = ends.connecting.ask(77, 5, kNonce);
  EXPECT_FALSE(ends.connecting.check(ends.accepting.confirm(asked, "", 3)).ok()) << "before any challenge";
  ASSERT_TRUE(ends.connecting.answer({.nonce = kOtherNonce}));
  EXPECT_FALSE(ends.connecting.answer({.nonce = kOtherNonce})) << "a second challenge";
  control::Resumed resumed = ends.accepting.confirm(asked, kOtherNonce, 3);
  ++resumed.heard;
  EXPECT_EQ(ends.connecting.check(resumed).code(), Code::kPermissionDenied);
  EXPECT_FALSE(ends.connecting.check({.heard = 3, .proof = {}}).ok());
  Ends others("alice");
  EXPECT_FALSE(ends.connecting.check(others.accepting.confirm(asked, kOtherNonce, 3)).ok());
  // Its own words are not an answer.
  (void)ends.connecting.ask(77, 5, kNonce);
  const control::Proof own = *ends.connecting.answer({.nonce = kOtherNonce});
  EXPECT_FALSE(ends.connecting.check({.heard = 0, .proof = own.digest}).ok());
}

TEST(Resumption, AChallengeHasItsSize) {
  Ends ends;
  (void)ends.connecting.ask(77, 5, kNonce);
  EXPECT_FALSE(ends.connecting.answer({.nonce = {}}));
  EXPECT_FALSE(ends.connecting.answer({.nonce = "short"}));
  EXPECT_TRUE(ends.connecting.answer({.nonce = kOtherNonce}));
}

}  // namespace
}  // namespace fairlead::datapath
