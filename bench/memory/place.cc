#include "bench/memory/place.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace fairlead::bench {

std::string to_string(Place place) { return place.on_host() ? "host" : fmt::format("cuda:{}", place.device); }

Result<Place> parse_place(std::string_view text) {
  if (text == "host") return Place{};
  if (text == "cuda") return Place{.device = 0};
  constexpr std::string_view kCuda = "cuda:";
  if (text.starts_with(kCuda)) {
    const std::string_view digits = text.substr(kCuda.size());
    std::uint16_t number = 0;
    const auto [end, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (wrong == std::errc() && end == digits.data() + digits.size()) return Place{.device = number};
  }
  return Status(Code::kInvalidArgument, fmt::format("'{}' is no place of memory (legal: host, cuda, cuda:N)", text));
}

}  // namespace fairlead::bench
