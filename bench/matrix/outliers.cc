#include "bench/matrix/outliers.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace fairlead::bench {
namespace {

constexpr double kLargestScore = 3.5, kNormal = 0.6745;

// What is typical of some values, and which of them is not.
class Typical {
 public:
  Typical(const std::vector<double>& values, Better better, double factor)
      : sign_(better == Better::kHigher ? 1 : -1), least_(std::log(factor)) {
    std::vector<double> logs, apart;
    for (const double value : values) logs.push_back(std::log(value));
    median_ = median(logs);
    for (const double log : logs) apart.push_back(std::abs(log - median_));
    mad_ = median(apart);
  }
  [[nodiscard]] double value() const { return std::exp(median_); }
  [[nodiscard]] bool is_slow(double value) const {
    const double worse = sign_ * (median_ - std::log(value));
    return worse > least_ && kNormal * worse > kLargestScore * mad_;
  }

 private:
  double sign_, least_, median_ = 0, mad_ = 0;
};

std::vector<double> medians_of_ranks(const Grid& grid, Role role) {
  std::vector<std::vector<double>> of(grid.ranks());
  for (const Pair pair : grid.pairs()) of[role == Role::kFrom ? pair.from : pair.to].push_back(grid.at(pair));
  std::vector<double> medians;
  for (std::vector<double>& values : of) medians.push_back(median(std::move(values)));
  return medians;
}

std::vector<std::optional<SlowRank>> slow_ranks(const Grid& grid, Role role, Better better, double factor) {
  const std::vector<double> medians = medians_of_ranks(grid, role);
  const Typical typical(medians, better, factor);
  std::vector<std::optional<SlowRank>> slow(medians.size());
  for (std::size_t rank = 0; rank < medians.size(); ++rank) {
    if (typical.is_slow(medians[rank])) slow[rank] = SlowRank{rank, role, medians[rank], typical.value()};
  }
  return slow;
}

}  // namespace

std::vector<Pair> Grid::pairs() const {
  std::vector<Pair> all;
  for (std::size_t from = 0; from < ranks_; ++from) {
    for (std::size_t to = 0; to < ranks_; ++to) {
      if (from != to) all.push_back({from, to});
    }
  }
  return all;
}

std::vector<Pair> Grid::measured() const {
  std::vector<Pair> those = pairs();
  std::erase_if(those, [this](Pair pair) { return at(pair) == 0; });
  return those;
}

std::string_view to_string(Role role) noexcept {
  return role == Role::kFrom ? "from" : role == Role::kTo ? "to" : "both";
}

Outliers find_outliers(const Grid& grid, Better better, double factor) {
  if (grid.ranks() < 2 || grid.measured().size() != grid.pairs().size()) return {};
  Outliers found;
  const auto from = slow_ranks(grid, Role::kFrom, better, factor), to = slow_ranks(grid, Role::kTo, better, factor);
  for (std::size_t rank = 0; rank < grid.ranks(); ++rank) {
    if (!from[rank] && !to[rank]) continue;
    found.ranks.push_back(from[rank] ? *from[rank] : *to[rank]);
    if (from[rank] && to[rank]) found.ranks.back().role = Role::kBoth;
  }
  std::vector<Pair> others;
  std::vector<double> values;
  for (const Pair pair : grid.pairs()) {
    if (from[pair.from] || to[pair.to]) continue;
    others.push_back(pair);
    values.push_back(grid.at(pair));
  }
  const Typical typical(values, better, factor);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (typical.is_slow(values[i])) found.pairs.push_back({others[i], values[i], typical.value()});
  }
  std::ranges::stable_sort(found.pairs, [better](const SlowPair& one, const SlowPair& other) {
    return better == Better::kHigher ? one.value < other.value : one.value > other.value;
  });
  return found;
}

}  // namespace fairlead::bench
