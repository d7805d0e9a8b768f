#include "datapath/command/resume/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace fairlead::datapath::command {

namespace {

void fill_with_chance(std::span<std::byte> bytes) {
  // Never interrupted or short for up to 256 bytes once the system's pool is seeded (getrandom(2)).
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
}

}  // namespace

std::optional<ProofDigest> prove(const SessionKey& key, const Attempt& attempt, Says who, Bytes rest) {
  const std::string_view name = who == Says::kClient ? "fairlead commands client " : "fairlead commands service";
  std::vector<std::byte> bytes;
  for (const Bytes part : {std::as_bytes(std::span(name)), Bytes(key.id), Bytes(attempt.client), Bytes(attempt.service),
                           rest}) {  // all but the last have one size
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  ProofDigest digest{};
  unsigned length = 0;
  const auto* const made = ::HMAC(::EVP_sha256(), key.secret.data(), static_cast<int>(key.secret.size()),
                                  reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                  reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (made == nullptr || length != digest.size()) return std::nullopt;
  return digest;
}

bool is_proved(const SessionKey& key, const Attempt& attempt, Says who, Bytes rest, const ProofDigest& digest) {
  const std::optional<ProofDigest> due = prove(key, attempt, who, rest);
  return due && ::CRYPTO_memcmp(due->data(), digest.data(), digest.size()) == 0;
}

SessionKey make_session_key() {
  SessionKey key;
  fill_with_chance(key.id);
  fill_with_chance(key.secret);
  return key;
}

Nonce make_nonce() {
  Nonce nonce;
  fill_with_chance(nonce);
  return nonce;
}

}  // namespace fairlead::datapath::command
