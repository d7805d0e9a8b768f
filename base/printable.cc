#include "base/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace fairlead {
namespace {

struct Character {
  std::size_t bytes = 1;
  bool harmless = false;
};

bool harmless(std::uint32_t code) noexcept {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  const bool ends_a_line = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                     (code >= 0x2066 && code <= 0x2069);
  return !ends_a_line && !turns;
}

// The first character; one harmful byte where that is no UTF-8 (RFC 3629: no overlong forms, no surrogates).
Character first_of(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, harmless(lead)};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  if (code < kSmallest[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {bytes, harmless(code)};
}

}  // namespace

bool is_printable(std::string_view text) noexcept {
  while (!text.empty()) {
    const Character next = first_of(text);
    if (!next.harmless) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_of(text);
    if (next.harmless) {
      out.append(text.substr(0, next.bytes));
    } else if (text.front() == '\n' || text.front() == '\t' || text.front() == '\r') {
      out.append(text.front() == '\n' ? "\\n" : text.front() == '\t' ? "\\t" : "\\r");
    } else {
      for (const char c : text.substr(0, next.bytes)) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<std::uint8_t>(c));
      }
    }
    text.remove_prefix(next.bytes);
  }
  return out;
}

}  // namespace fairlead
