#include "bench/base/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace fairlead::bench {
namespace {

constexpr std::string_view kLegal = "legal: a number of bytes, with K, M, G or T for powers of 1024, or 2^k";
constexpr std::size_t kMaxSizes = 64;

Status bad(std::string_view text, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("size '{}': {} ({})", text, why, kLegal)};
}

// The exponent of two that a suffix stands for, or -1.
int suffix_shift(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 0;
  const std::string_view units = "KMGT";
  const std::size_t at = units.find(static_cast<char>(suffix[0] & ~0x20));
  const std::string_view rest = suffix.substr(1);
  if (at == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB")) return -1;
  return 10 * (static_cast<int>(at) + 1);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  if (text.starts_with("2^")) {
    const auto [rest, error] = std::from_chars(begin + 2, end, value);
    if (error != std::errc() || rest != end) return bad(text, "the exponent is not a number");
    if (value > 62) return bad(text, "the exponent is above 62");
    return std::uint64_t{1} << value;
  }
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error == std::errc::result_out_of_range) return bad(text, "too large");
  if (error != std::errc()) return bad(text, "not a number");
  const int shift = suffix_shift({rest, static_cast<std::size_t>(end - rest)});
  if (shift < 0) return bad(text, "unknown unit");
  if (value > (std::uint64_t{std::numeric_limits<std::int64_t>::max()} >> shift)) return bad(text, "too large");
  return value << shift;
}

Result<std::vector<std::uint64_t>> parse_size_list(std::string_view text, std::uint64_t max_bytes) {
  std::vector<std::uint64_t> sizes;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    const std::size_t dots = item.find("..");
    Result<std::uint64_t> first = parse_size(item.substr(0, dots));
    if (!first) return first.error();
    Result<std::uint64_t> last = first;
    if (dots != std::string_view::npos) last = parse_size(item.substr(dots + 2));
    if (!last) return last.error();
    if (*first == 0) return bad(item, "must be at least 1");
    if (*last < *first) return bad(item, "the range ends before it begins");
    if (*last > max_bytes) return bad(item, fmt::format("the limit is {}", format_size(max_bytes)));
    for (std::uint64_t size = *first; size <= *last; size *= 2) {
      if (sizes.size() == kMaxSizes) return bad(item, fmt::format("more than {} sizes", kMaxSizes));
      if (std::ranges::find(sizes, size) != sizes.end())
        return Status(Code::kInvalidArgument, fmt::format("size {} is given twice", format_size(size)));
      sizes.push_back(size);
    }
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string format_bytes(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G", "T"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

}  // namespace fairlead::bench
