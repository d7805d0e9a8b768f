// Which ranks and pairs of a matrix are worse than the rest.
//
// Figures are compared as logarithms, since what counts is the ratio. One is an outlier if it is worse than the median
// by more than a given factor, and its modified z-score, 0.6745 |x - median| / MAD, is above 3.5 (Iglewicz and Hoaglin,
// "How to Detect and Handle Outliers", 1993; MAD is the median of what the values differ from their median). Both are
// robust: up to half of the values may be anything. The factor is for figures that hardly differ, where MAD is next to
// nothing.
//
// Ranks come first: each has the median of the figures of its pairs, one of those that it is the active end of and one
// of the others. Pairs of a rank that is slow that way are not named again, and do not count among the others. Threads:
// pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/gain/statistics.h"
#include "bench/matrix/tournament.h"

namespace fairlead::bench {

/// A figure above 0 of each ordered pair, or 0: it has none.
class Grid {
 public:
  explicit Grid(std::size_t ranks) : ranks_(ranks), values_(ranks * ranks) {}
  [[nodiscard]] std::size_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] double at(Pair pair) const noexcept { return values_[pair.from * ranks_ + pair.to]; }
  void set(Pair pair, double value) noexcept { values_[pair.from * ranks_ + pair.to] = value; }
  /// All that there are, by `from`, then `to`.
  [[nodiscard]] std::vector<Pair> pairs() const;
  /// Those that have a figure.
  [[nodiscard]] std::vector<Pair> measured() const;

 private:
  std::size_t ranks_;
  std::vector<double> values_;
};

enum class Role : std::uint8_t { kFrom, kTo, kBoth };
/// "from", "to", "both"
[[nodiscard]] std::string_view to_string(Role role) noexcept;

struct SlowRank {
  std::size_t rank = 0;
  Role role = Role::kBoth;
  double value = 0, typical = 0;  // its pairs' median, and the median of the ranks'; of kBoth, as the active end
};

struct SlowPair {
  Pair pair;
  double value = 0, typical = 0;
};

struct Outliers {
  std::vector<SlowRank> ranks;  // by number
  std::vector<SlowPair> pairs;  // worst first
};

/// `factor`, above 1: how many times worse than the median an outlier is at least. None of a grid that lacks a figure.
[[nodiscard]] Outliers find_outliers(const Grid& grid, Better better, double factor);

}  // namespace fairlead::bench
