// Sizes in messages.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace fairlead {

/// "100 bytes", "64.0 KiB", "1.5 GiB".
[[nodiscard]] inline std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKi = 1024;
  if (bytes >= kKi * kKi * kKi) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (kKi * kKi * kKi));
  if (bytes >= kKi * kKi) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (kKi * kKi));
  if (bytes >= kKi) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKi);
  return fmt::format("{} bytes", bytes);
}

}  // namespace fairlead
