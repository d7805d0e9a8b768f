// What two ends show each other before they go on with a session over another control connection: that each is the one
// the other began it with.
//
//   connecting                              accepting
//   Resume{session, nonce}       ------>
//                                <------    Challenge{nonce}
//   Proof{digest}                ------>
//                                <------    Resumed{digest}
//
// The key is made of a secret that the accepting end gave in its Hello and, where the session is a principal's, of the
// principal's key, so that who overheard the greeting has not enough. The digests are of the session, of which attempt
// this is, of both nonces and of what both say they have heard. Attempts rise: a connection that was given up, and
// whose last words come late, does not take the place of the one after it. An end keeps one for each session. No input
// or output; secrets and nonces are given. Threads: the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "datapath/identity/hmac.h"
#include "datapath/identity/principals.h"
#include "datapath/protocol/frames.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class Resumption {
 public:
  static constexpr std::size_t kNonceBytes = 32, kSecretBytes = 32;

  /// The session is this principal's; empty: nobody's. `secret` has kSecretBytes. Not called: nobody can resume it.
  void begin(const Principals& known, const std::string& principal, std::string_view secret);

  // --- the end that connects
  [[nodiscard]] control::Resume ask(std::uint64_t session, std::uint64_t heard, std::string nonce);
  Result<control::Proof> answer(const control::Challenge& challenge);
  /// ok: the accepting end is the one that the session was begun with.
  [[nodiscard]] Status check(const control::Resumed& resumed) const;

  // --- the end that accepts. `nonce`: of its challenge
  /// ok: who asks is the one that the session was begun with, and asks anew.
  [[nodiscard]] Status check(const control::Resume& asked, const std::string& nonce, const control::Proof& proof) const;
  /// Accepts it.
  [[nodiscard]] control::Resumed confirm(const control::Resume& asked, const std::string& nonce, std::uint64_t heard);

 private:
  enum class Says : bool { kConnecting, kAccepting };
  [[nodiscard]] std::optional<Digest> digest(Says who, const control::Resume& asked, std::string_view nonce,
                                             std::uint64_t heard) const;

  std::optional<Digest> key_;
  std::uint64_t attempts_ = 0;  // made, or the last that was accepted
  control::Resume asked_;       // connecting
  std::string nonce_;           // connecting: of the challenge
};

}  // namespace fairlead::datapath
