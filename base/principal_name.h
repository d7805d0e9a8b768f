// What the name of a principal may be (docs/security.md).
#pragma once

#include <cstddef>
#include <string_view>

namespace fairlead {

inline constexpr std::size_t kMaxPrincipalName = 64;  // characters
inline constexpr std::string_view kLegalPrincipalName = "1 to 64 letters, digits and '._@-'";

/// Letters, digits and "._@-", 1 to kMaxPrincipalName of them: they need no quotes anywhere.
[[nodiscard]] constexpr bool is_principal_name(std::string_view name) noexcept {
  constexpr std::string_view kLegal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";
  return !name.empty() && name.size() <= kMaxPrincipalName && name.find_first_not_of(kLegal) == std::string_view::npos;
}

}  // namespace fairlead
