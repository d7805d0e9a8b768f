// Random bits that name one thing and prove that one was told of it. Threads: stateless.
#pragma once

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <cstdlib>

namespace fairlead::shm {

/// 128 bits.
using Token = std::array<std::byte, 16>;

[[nodiscard]] inline Token random_token() noexcept {
  Token token{};
  // Never interrupted or short for 16 bytes once the system's pool is seeded (getrandom(2)).
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) std::abort();
  return token;
}

/// In a time that does not depend on where they differ.
[[nodiscard]] inline bool equal(const Token& a, const Token& b) noexcept {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace fairlead::shm
