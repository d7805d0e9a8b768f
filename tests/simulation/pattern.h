// Bytes that say which transfer they are of and where in it they lie: a byte that is misplaced, stale or of another
// transfer shows. None is 0 or kPoison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace fairlead::simulation {

inline constexpr std::byte kPoison{0xee};  // what a buffer holds that is the application's again

class Pattern {
 public:
  static void fill(std::span<std::byte> bytes, std::uint64_t id) {
    pieces(bytes.size(), id, 0, [&](std::size_t at, const std::byte* from, std::size_t size) {
      std::memcpy(bytes.data() + at, from, size);
      return true;
    });
  }
  /// Whether these are the bytes of `id` that begin at `from`.
  [[nodiscard]] static bool holds(std::span<const std::byte> bytes, std::uint64_t id, std::uint64_t from = 0) {
    return pieces(bytes.size(), id, from, [&](std::size_t at, const std::byte* expected, std::size_t size) {
      return std::memcmp(bytes.data() + at, expected, size) == 0;
    });
  }

 private:
  static constexpr std::size_t kPeriod = 65'521;  // a prime: no chunk or message is a multiple of it

  template <typename Use>
  static bool pieces(std::size_t size, std::uint64_t id, std::uint64_t from, Use use) {
    static const std::vector<std::byte> table = make();
    for (std::size_t at = 0; at < size;) {
      const std::size_t phase = (id * 40'503 + from + at) % kPeriod;
      const std::size_t length = std::min(size - at, kPeriod);  // the table is two periods long
      if (!use(at, table.data() + phase, length)) return false;
      at += length;
    }
    return true;
  }
  static std::vector<std::byte> make() {
    std::vector<std::byte> table(2 * kPeriod);
    for (std::size_t i = 0; i < table.size(); ++i) {
      table[i] = static_cast<std::byte>((((i % kPeriod) * 0xc2b2ae3d27d4eb4f) >> 57) | 1);
    }
    return table;
  }
};

}  // namespace fairlead::simulation
