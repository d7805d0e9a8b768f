#include "datapath/identity/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdint>
#include <string>

namespace fairlead {

std::optional<Digest> hmac_sha256(std::span<const std::byte> key, std::initializer_list<std::string_view> parts) {
  std::string bytes;
  for (const std::string_view part : parts) {
    const std::uint64_t size = part.size();
    for (unsigned shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(size >> shift & 0xff));
    bytes += part;
  }
  Digest digest{};
  unsigned length = 0;
  const auto* made = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                            reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (made == nullptr || length != digest.size()) return std::nullopt;
  return digest;
}

bool is_digest(const Digest& digest, std::string_view bytes) noexcept {
  return bytes.size() == digest.size() && ::CRYPTO_memcmp(digest.data(), bytes.data(), digest.size()) == 0;
}

}  // namespace fairlead
