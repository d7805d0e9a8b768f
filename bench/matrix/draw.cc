#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/printable.h"
#include "base/svg.h"
#include "bench/matrix/report.h"

namespace fairlead::bench {
namespace {

constexpr SvgStyle kStyle = {
    .light = "",
    .dark = "",
    .rules =
        ".cell { fill: var(--ink0); stroke: none; } .none { fill: none; stroke: var(--frame); }\n"
        ".slow { fill: none; stroke: var(--ink1); stroke-width: 3; }\n"
        ".named { fill: var(--ink1); font-weight: bold; }\n"
        ".middle { text-anchor: middle; } .end { text-anchor: end; }\n"};

// Pixels of a drawing whose text is 12 high.
constexpr double kLeft = 60, kTop = 64, kGap = 70, kRight = 24, kLine = 16, kCharacter = 6.7;
constexpr double kWithText = 54, kWithout = 14;  // a cell's side, with its figure in it or without
constexpr std::size_t kMostWithText = 16;        // ranks
// How dark the best and the worst are; those that differ by less than this factor are not told apart by much.
constexpr double kPalest = 0.06, kDarkest = 0.6, kLeastRange = 2;

class Drawing {
 public:
  Drawing(const Matrix& matrix, const MatrixOutliers& outliers)
      : matrix_(matrix),
        outliers_(outliers),
        ranks_(matrix.ranks.size()),
        side_(ranks_ <= kMostWithText ? kWithText : kWithout) {}

  std::string draw() {
    std::vector<std::string> words = lines(matrix_, outliers_);
    std::erase_if(words, [](const std::string& line) {
      return !line.starts_with("slow") && !line.starts_with("no ") && !line.starts_with("interrupted");
    });
    const double map = side_ * static_cast<double>(ranks_);
    double width = kLeft + 2 * map + kGap + kRight;
    for (const std::string& line : words) {
      width = std::max(width, kLeft + static_cast<double>(line.size()) * kCharacter + kRight);
    }
    const double below = kTop + map + 2 * kLine;
    out_ = svg_head(width, below + kLine * static_cast<double>(words.size()) + kLine,
                    fmt::format("All pairs of {} ranks", ranks_), kStyle);
    text(kLeft, 20, "",
         fmt::format("All pairs of {} ranks, from that of a line to that of a column: the darker, the slower", ranks_));
    map_of(kLeft, "MB/s", matrix_.bytes_per_second, 1e6, Better::kHigher, outliers_.bandwidth);
    map_of(kLeft + map + kGap, "us", matrix_.latency_p50, 1e3, Better::kLower, outliers_.latency);
    for (std::size_t i = 0; i < words.size(); ++i) text(kLeft, below + kLine * static_cast<double>(i), "", words[i]);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }
  void text(double x, double y, std::string_view style, const std::string& words) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y, escape_xml(printable(words)));
  }

  void map_of(double left, std::string_view unit, const Grid& grid, double divisor, Better better,
              const Outliers& outliers) {
    text(left, 40, "",
         better == Better::kHigher ? fmt::format("bandwidth, {}", unit) : fmt::format("latency, {}", unit));
    labels(left, outliers);
    const std::vector<Pair> pairs = grid.measured();
    if (pairs.empty()) return;
    const auto by_value = [&](Pair one, Pair other) { return grid.at(one) < grid.at(other); };
    const auto [least, most] = std::ranges::minmax(pairs, by_value);
    const double best = grid.at(better == Better::kHigher ? most : least);
    const double range = std::log(std::max(grid.at(most) / grid.at(least), kLeastRange));
    for (std::size_t rank = 0; rank < ranks_; ++rank) square(left, {rank, rank}, "none", 1, "");
    for (const Pair pair : pairs) {
      const double value = grid.at(pair);
      const double opacity = kPalest + (kDarkest - kPalest) * std::abs(std::log(best / value)) / range;
      square(left, pair, "cell", opacity,
             fmt::format("{} to {}: {:.2f} {}", pair.from, pair.to, value / divisor, unit));
      if (side_ != kWithText) continue;
      text(x(left, pair) + side_ / 2, y(pair) + side_ / 2 + 4, "middle", fmt::format("{:.4g}", value / divisor));
    }
    for (const SlowPair& slow : outliers.pairs) square(left, slow.pair, "slow", 1, "");
    for (const SlowRank& slow : outliers.ranks) {
      for (const Pair pair : pairs) {
        const bool of_it =
            (slow.role != Role::kTo && pair.from == slow.rank) || (slow.role != Role::kFrom && pair.to == slow.rank);
        if (of_it) square(left, pair, "slow", 1, "");
      }
    }
  }

  // Of a map with small cells every fifth line and column has its number.
  void labels(double left, const Outliers& outliers) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const auto named = std::ranges::find(outliers.ranks, rank, &SlowRank::rank);
      const bool is_named = named != outliers.ranks.end();
      if (side_ == kWithout && rank % 5 != 0 && !is_named) continue;
      const auto style = [&](Role other, std::string_view place) {
        return fmt::format("{}{}", is_named && named->role != other ? "named " : "", place);
      };
      text(left - 6, y({rank, 0}) + side_ / 2 + 4, style(Role::kTo, "end"), fmt::format("{}", rank));
      text(x(left, {0, rank}) + side_ / 2, kTop - 6, style(Role::kFrom, "middle"), fmt::format("{}", rank));
    }
  }

  [[nodiscard]] double x(double left, Pair pair) const { return left + side_ * static_cast<double>(pair.to); }
  [[nodiscard]] double y(Pair pair) const { return kTop + side_ * static_cast<double>(pair.from); }
  void square(double left, Pair pair, std::string_view style, double opacity, const std::string& title) {
    add("<rect class=\"{}\" fill-opacity=\"{:.3f}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">",
        style, opacity, x(left, pair) + 1, y(pair) + 1, side_ - 2, side_ - 2);
    if (!title.empty()) add("<title>{}</title>", escape_xml(title));
    out_ += "</rect>\n";
  }

  const Matrix& matrix_;
  const MatrixOutliers& outliers_;
  std::size_t ranks_;
  double side_;
  std::string out_;
};

}  // namespace

std::string draw(const Matrix& matrix, const MatrixOutliers& outliers) { return Drawing(matrix, outliers).draw(); }

}  // namespace fairlead::bench
