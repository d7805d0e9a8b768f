// How a client shows over a new peer that a session, which the service keeps, is its own.
//
//   client                                    service
//   Resume{id, nonce}              ------>
//                                  <------    Challenge{nonce}
//   Proof{digest, what it has}     ------>
//                                  <------    Resumed{digest, what it has}
//
// The digests are HMAC-SHA256 (RFC 2104) with the secret that the service gave when the session began, over who says
// it, the session, both nonces, and all that follows the digest. So neither can be said by who does not have the
// secret, nor be said again. Besides, a session is its principal's, whom the engine knows. Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "datapath/command/codec.h"
#include "datapath/command/wire.h"

namespace fairlead::datapath::command {

/// A session that is kept for its client, as both ends know it.
struct SessionKey {
  SessionId id{};
  SessionSecret secret{};
};

/// What one attempt to go on with it is about.
struct Attempt {
  Nonce client{}, service{};
};

using ProofDigest = std::array<std::byte, 32>;

enum class Says : bool { kClient, kService };

/// Nothing: libcrypto refuses.
[[nodiscard]] std::optional<ProofDigest> prove(const SessionKey& key, const Attempt& attempt, Says who, Bytes rest);
/// Whether that is the digest; in a time that does not tell where it differs.
[[nodiscard]] bool is_proved(const SessionKey& key, const Attempt& attempt, Says who, Bytes rest,
                             const ProofDigest& digest);

/// A key of a session, or a nonce: bytes that nobody can guess.
[[nodiscard]] SessionKey make_session_key();
[[nodiscard]] Nonce make_nonce();

}  // namespace fairlead::datapath::command
