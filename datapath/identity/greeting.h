// What two ends say before one believes who the other is: one key, which both show that they have.
//
//   connecting                              accepting
//   Hello{principal, nonce}      ------>
//                                <------    Challenge{nonce}
//   Proof{digest}                ------>
//                                <------    Hello{..., digest}
//
// The digest is of the principal's name, both nonces, and who says it, under the principal's key: nobody can say it
// again in another session, or send an end's own words back to it. An anonymous end names no principal and is answered
// by the Hello at once. Whether a name is known an end does not tell who has not its key.
//
// What it does not do: nothing after the greeting is protected from who can change what is on the wire.
// No input or output; nonces are given. Threads: the driver.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "datapath/identity/hmac.h"
#include "datapath/identity/principals.h"
#include "datapath/protocol/frames.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class Greeting {
 public:
  static constexpr std::size_t kNonceBytes = 32;
  /// `known` must outlive it. `own`: who this end is when it connects, one of `known`; empty: anonymous. `anonymous`:
  /// whether who connects here may be that.
  Greeting(const Principals& known, std::string own, bool anonymous)
      : known_(known), own_(std::move(own)), anonymous_(anonymous) {}

  // --- the end that connects
  /// Completes its hello. Whom it greeted before, at another of the peer's places, is forgotten.
  void introduce(control::Hello& hello, std::string nonce);
  Result<control::Proof> answer(const control::Challenge& challenge);
  /// ok: the accepting end has the key too, or none was to be shown.
  [[nodiscard]] Status check(const control::Hello& theirs);

  // --- the end that accepts
  /// ok: greet it; kUnavailable: challenge it first; else why it is refused.
  [[nodiscard]] Status hear(const control::Hello& theirs);
  [[nodiscard]] control::Challenge challenge(std::string nonce);
  /// ok: it is who it says.
  [[nodiscard]] Status check(const control::Proof& proof);
  /// Completes the answering hello.
  void confirm(control::Hello& hello) const;

  /// Whose session it is; empty: nobody's, or nobody was proved yet.
  [[nodiscard]] const std::string& principal() const noexcept { return principal_; }

 private:
  enum class Says : bool { kConnecting, kAccepting };
  [[nodiscard]] std::optional<Digest> digest(Says who, const std::string& name) const;

  const Principals& known_;
  const std::string own_;
  const bool anonymous_;
  std::string claimed_;  // by who connects
  std::string nonce_of_connecting_, nonce_of_accepting_;
  std::string principal_;
};

}  // namespace fairlead::datapath
