// Who may have seen what lies in a free block, and whether it must be cleared before somebody else gets it.
//
// Memory that stays with one audience is not cleared, memory that goes from one to another is. Audiences are numbers
// here, one for each set of principals.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace fairlead::memreg {

enum class Audience : std::uint32_t {
  kNobody = 0,   // nobody has written there: all 0
  kUnnamed = 1,  // whoever it was did not say for whom: cleared for everybody, also for the next who does not say
};  // from 2 on: a set of principals

/// Whether what `before` left is cleared for `next`.
[[nodiscard]] constexpr bool must_clear(Audience before, Audience next) noexcept {
  return before != Audience::kNobody && (before != next || next == Audience::kUnnamed);
}

/// Of two pieces of memory together.
[[nodiscard]] constexpr Audience both(Audience a, Audience b) noexcept {
  if (a == b || b == Audience::kNobody) return a;
  return a == Audience::kNobody ? b : Audience::kUnnamed;
}

/// Numbers sets of principals. Threads: any.
class Audiences {
 public:
  static constexpr std::size_t kMost = 65536;  // sets; what comes after them is kUnnamed, which is always safe

  /// The same for the same principals in any order. No principals are everybody, which is a set of its own.
  [[nodiscard]] Audience number_of(std::span<const std::string> principals);

 private:
  std::mutex mutex_;
  std::map<std::vector<std::string>, Audience> numbers_;  // under mutex_
};

}  // namespace fairlead::memreg
