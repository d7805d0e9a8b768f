#include "datapath/identity/resumption.h"

#include <fmt/format.h>

#include <utility>

namespace fairlead::datapath {
void Resumption::begin(const Principals& known, const std::string& principal, std::string_view secret) {
  key_ = hmac_sha256(known.key_to_check(principal), {"fairlead: goes on", secret});
}

std::optional<Digest> Resumption::digest(Says who, const control::Resume& asked, std::string_view nonce,
                                         std::uint64_t heard) const {
  if (!key_) return std::nullopt;
  const std::string numbers = fmt::format("{} {} {} {}", asked.session_id, asked.attempt, asked.heard, heard);
  return hmac_sha256(
      std::as_bytes(std::span(*key_)),
      {who == Says::kConnecting ? "fairlead: who goes on" : "fairlead: who goes along", numbers, asked.nonce, nonce});
}

// ---- the end that connects

control::Resume Resumption::ask(std::uint64_t session, std::uint64_t heard, std::string nonce) {
  nonce_.clear();
  asked_ = {.session_id = session, .attempt = ++attempts_, .heard = heard, .nonce = std::move(nonce)};
  return asked_;
}

Result<control::Proof> Resumption::answer(const control::Challenge& challenge) {
  if (!nonce_.empty() || challenge.nonce.size() != kNonceBytes) {
    return {Code::kDataLoss, fmt::format("a challenge of {} bytes, {}", challenge.nonce.size(),
                                         nonce_.empty() ? "where 32 are due" : "after another")};
  }
  nonce_ = challenge.nonce;
  const std::optional<Digest> made = digest(Says::kConnecting, asked_, nonce_, 0);
  if (!made) return {Code::kInternal, "libcrypto has no HMAC-SHA256"};
  return control::Proof{.digest = text_of(*made)};
}

Status Resumption::check(const control::Resumed& resumed) const {
  const std::optional<Digest> wanted = digest(Says::kAccepting, asked_, nonce_, resumed.heard);
  if (!nonce_.empty() && wanted && is_digest(*wanted, resumed.proof)) return {};
  return {Code::kPermissionDenied, "who answers is not the one that the session was begun with"};
}

// ---- the end that accepts

Status Resumption::check(const control::Resume& asked, const std::string& nonce, const control::Proof& proof) const {
  const std::optional<Digest> wanted = digest(Says::kConnecting, asked, nonce, 0);
  if (!wanted || asked.nonce.size() != kNonceBytes || !is_digest(*wanted, proof.digest)) {
    return {Code::kPermissionDenied, "it did not show that it is the one that the session was begun with"};
  }
  if (asked.attempt > attempts_) return {};
  return {Code::kDataLoss, fmt::format("attempt {} to resume it, after {}", asked.attempt, attempts_)};
}

control::Resumed Resumption::confirm(const control::Resume& asked, const std::string& nonce, std::uint64_t heard) {
  attempts_ = asked.attempt;
  const std::optional<Digest> made = digest(Says::kAccepting, asked, nonce, heard);
  return {.heard = heard, .proof = made ? text_of(*made) : std::string()};
}

}  // namespace fairlead::datapath
