// A fuzzer's input as a source of numbers, bytes and words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fairlead::fuzz {

/// The input, as numbers; zeroes behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  [[nodiscard]] bool empty() const noexcept { return left_ == 0; }
  std::uint8_t byte() noexcept {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  /// Mostly small; now and then any.
  std::uint64_t number() noexcept {
    const std::uint8_t first = byte();
    if (first < 0xf0) return first;
    std::uint64_t made = 0;
    for (int i = 0; i < (first & 7) + 1; ++i) made = made << 8 | byte();
    return first == 0xff ? ~made : made;
  }
  std::string text() {
    std::string made(byte() % 64, '\0');
    for (char& each : made) each = static_cast<char>(byte());
    return made;
  }
  std::vector<std::byte> bytes(std::size_t most) {
    std::vector<std::byte> made(std::min<std::size_t>(number(), most));
    for (std::byte& each : made) each = static_cast<std::byte>(byte());
    return made;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

}  // namespace fairlead::fuzz
