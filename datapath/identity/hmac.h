// A keyed hash, by which who has a key shows it without telling it: HMAC (RFC 2104) with SHA-256 (FIPS 180-4).
//
// Computed by OpenSSL's libcrypto. Threads: stateless.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fairlead {

using Digest = std::array<char, 32>;

/// As frames carry it.
[[nodiscard]] inline std::string text_of(const Digest& digest) { return {digest.data(), digest.size()}; }

/// Of the parts, each behind its length (64 bits), so that no two lists are the same bytes. Nothing: libcrypto refuses.
[[nodiscard]] std::optional<Digest> hmac_sha256(std::span<const std::byte> key,
                                                std::initializer_list<std::string_view> parts);

/// In a time that does not tell where they differ.
[[nodiscard]] bool is_digest(const Digest& digest, std::string_view bytes) noexcept;

}  // namespace fairlead
