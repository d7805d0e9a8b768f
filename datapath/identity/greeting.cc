#include "datapath/identity/greeting.h"

#include <fmt/format.h>

#include <utility>

#include "base/principal_name.h"

namespace fairlead::datapath {
namespace {

constexpr std::string_view kConnectingSays = "fairlead: who connects", kAcceptingSays = "fairlead: who accepts";

}  // namespace

std::optional<Digest> Greeting::digest(Says who, const std::string& name) const {
  return hmac_sha256(known_.key_to_check(name), {who == Says::kConnecting ? kConnectingSays : kAcceptingSays, name,
                                                 nonce_of_connecting_, nonce_of_accepting_});
}

// ---- the end that connects

void Greeting::introduce(control::Hello& hello, std::string nonce) {
  nonce_of_accepting_.clear();  // another's, who was left
  principal_.clear();
  if (own_.empty()) return;
  nonce_of_connecting_ = std::move(nonce);
  hello.principal = own_;
  hello.nonce = nonce_of_connecting_;
}

Result<control::Proof> Greeting::answer(const control::Challenge& challenge) {
  if (own_.empty() || !nonce_of_accepting_.empty()) return {Code::kDataLoss, "challenged us out of turn"};
  if (challenge.nonce.size() != kNonceBytes) {
    return {Code::kDataLoss, fmt::format("sent a challenge of {} bytes", challenge.nonce.size())};
  }
  nonce_of_accepting_ = challenge.nonce;
  const std::optional<Digest> made = digest(Says::kConnecting, own_);
  if (!made) return {Code::kInternal, "could not be answered: libcrypto has no HMAC-SHA256"};
  return control::Proof{.digest = text_of(*made)};
}

Status Greeting::check(const control::Hello& theirs) {
  if (own_.empty()) return {};
  const std::optional<Digest> wanted = digest(Says::kAccepting, own_);
  if (!nonce_of_accepting_.empty() && wanted && is_digest(*wanted, theirs.proof)) {
    principal_ = own_;
    return {};
  }
  return {Code::kPermissionDenied,
          fmt::format("it did not show that it has the key of '{}', as whom we connect: give it a keys file with that "
                      "line, or connect without a principal",
                      own_)};
}

// ---- the end that accepts

Status Greeting::hear(const control::Hello& theirs) {
  if (theirs.principal.empty()) {
    if (known_.empty() || anonymous_) return {};
    return {Code::kPermissionDenied,
            "it takes no anonymous peers; set keys_file and principal (--keys, --principal), with a key that its own "
            "keys file has too"};
  }
  if (known_.empty()) {
    return {Code::kPermissionDenied,
            "it has no keys file, so it cannot know who connects; give it one, or connect without a principal"};
  }
  if (!is_principal_name(theirs.principal) || theirs.nonce.size() != kNonceBytes) {
    return {Code::kInvalidArgument,
            fmt::format("a principal of {} characters with a nonce of {} bytes; legal: {}, and {} bytes",
                        theirs.principal.size(), theirs.nonce.size(), kLegalPrincipalName, kNonceBytes)};
  }
  claimed_ = theirs.principal;
  nonce_of_connecting_ = theirs.nonce;
  return {Code::kUnavailable, "it is to show its key first"};
}

control::Challenge Greeting::challenge(std::string nonce) {
  nonce_of_accepting_ = std::move(nonce);
  return {.nonce = nonce_of_accepting_};
}

Status Greeting::check(const control::Proof& proof) {
  const std::optional<Digest> wanted = digest(Says::kConnecting, claimed_);
  const bool known = known_.key_of(claimed_) != nullptr;
  if (wanted && is_digest(*wanted, proof.digest) && known) {
    principal_ = claimed_;
    return {};
  }
  return {Code::kPermissionDenied,
          fmt::format("'{}' did not show a key that is known here: the line of that name must be the same in both keys "
                      "files",
                      claimed_)};
}

void Greeting::confirm(control::Hello& hello) const {
  if (principal_.empty()) return;
  if (const std::optional<Digest> made = digest(Says::kAccepting, principal_)) hello.proof = text_of(*made);
}

}  // namespace fairlead::datapath
