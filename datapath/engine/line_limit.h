// How often a line is logged that others cause: once in an interval, and with it how many were kept back before.
//
// The caller guards it, and says what time it is.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace fairlead::datapath {

class LineLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit LineLimit(std::chrono::milliseconds interval) noexcept : interval_(interval) {}

  /// Nothing: this one is kept back. Else how many were since the last that was not.
  [[nodiscard]] std::optional<std::uint64_t> take(Clock::time_point now) noexcept {
    if (last_ && now - *last_ < interval_) {
      ++kept_back_;
      return std::nullopt;
    }
    last_ = now;
    const std::uint64_t before = kept_back_;
    kept_back_ = 0;
    return before;
  }

  /// How a line ends that take() let through, with what it returned.
  [[nodiscard]] static std::string others(std::uint64_t before) {
    return before != 0 ? fmt::format(" ({} more since the last such line)", before) : "";
  }

 private:
  std::chrono::milliseconds interval_;
  std::optional<Clock::time_point> last_;
  std::uint64_t kept_back_ = 0;
};

}  // namespace fairlead::datapath
