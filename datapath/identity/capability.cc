#include "datapath/identity/capability.h"

#include <fmt/format.h>

namespace fairlead::datapath {
namespace {

constexpr std::string_view kBegins = "fairlead1:";

/// The number that all of `digits` are; nothing: they are none. Lower case only, so that a capability has one text.
std::optional<std::uint64_t> number_of(std::string_view digits) noexcept {
  std::uint64_t number = 0;
  for (const char digit : digits) {
    const bool letter = digit >= 'a' && digit <= 'f';
    if (!letter && (digit < '0' || digit > '9')) return std::nullopt;
    number = number << 4 | static_cast<std::uint64_t>(letter ? digit - 'a' + 10 : digit - '0');
  }
  return number;
}

}  // namespace

std::string to_text(const Capability& capability) {
  std::string text = fmt::format("{}{:016x}:{:02x}:", kBegins, capability.region, static_cast<int>(capability.access));
  for (const char byte : capability.secret) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<Capability> parse_capability(std::string_view text) {
  if (text.size() != kCapabilityBytes || !text.starts_with(kBegins)) return std::nullopt;
  text.remove_prefix(kBegins.size());
  if (text[16] != ':' || text[19] != ':') return std::nullopt;
  const auto region = number_of(text.substr(0, 16)), access = number_of(text.substr(17, 2));
  if (!region || !access) return std::nullopt;
  Capability capability{.region = *region, .access = static_cast<Access>(*access), .secret = {}};
  for (std::size_t i = 0; i < capability.secret.size(); ++i) {
    const auto byte = number_of(text.substr(20 + 2 * i, 2));
    if (!byte) return std::nullopt;
    capability.secret[i] = static_cast<char>(*byte);
  }
  return capability;
}

}  // namespace fairlead::datapath
