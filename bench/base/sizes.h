// Sizes as people write them: "8", "4K", "1M", "2^20"; lists and ranges of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::bench {

/// Bytes. K, M, G and T are powers of 1024, with "B" or "iB" after them if you like; "2^k" is two to the k (k <= 62).
/// Errors: kInvalidArgument naming the text and the legal forms.
Result<std::uint64_t> parse_size(std::string_view text);

/// "8,4K,1M" or ranges that double: "8..1M" = 8, 16, 32 ... 1M. At least 1 byte, at most `max_bytes`, 1 to 64 sizes,
/// none twice.
Result<std::vector<std::uint64_t>> parse_size_list(std::string_view text, std::uint64_t max_bytes);

/// "102.2 MB" (decimal, as throughput is), "117 B".
[[nodiscard]] std::string format_bytes(double bytes);
[[nodiscard]] std::string format_bytes(std::integral auto bytes) { return format_bytes(static_cast<double>(bytes)); }
/// "8", "4K", "1M": the shortest exact form that parse_size reads.
[[nodiscard]] std::string format_size(std::uint64_t bytes);

}  // namespace fairlead::bench
