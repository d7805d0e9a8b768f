// A packet sequence number: 24 bits, compared serially (IBTA 9.7.1: half of the space lies ahead, half behind).
#pragma once

#include <cstdint>

namespace fairlead::soft {

class Psn {
 public:
  static constexpr std::uint32_t kMask = 0xffffff;

  constexpr Psn() noexcept = default;
  constexpr explicit Psn(std::uint32_t value) noexcept : value_(value & kMask) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }
  [[nodiscard]] constexpr Psn operator+(std::uint32_t packets) const noexcept { return Psn(value_ + packets); }
  [[nodiscard]] constexpr Psn operator-(std::uint32_t packets) const noexcept { return Psn(value_ - packets); }
  constexpr Psn& operator++() noexcept { return *this = *this + 1; }
  [[nodiscard]] friend constexpr bool operator==(Psn, Psn) noexcept = default;

  /// Packets from `other` to this one: negative when this one lies behind.
  [[nodiscard]] constexpr std::int32_t since(Psn other) const noexcept {
    return static_cast<std::int32_t>((value_ - other.value_) << 8) >> 8;
  }
  [[nodiscard]] constexpr bool before(Psn other) const noexcept { return since(other) < 0; }

 private:
  std::uint32_t value_ = 0;
};

static_assert(Psn(0xffffff) + 1 == Psn(0));
static_assert(Psn(0xfffffe).before(Psn(3)) && !Psn(3).before(Psn(0xfffffe)));
static_assert(Psn(3).since(Psn(0xffffff)) == 4);

}  // namespace fairlead::soft
