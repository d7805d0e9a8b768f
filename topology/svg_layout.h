// Where the parts of a drawing stand: boxes in boxes, a legend below, as large as can be on a page of A4.
//
// Pixels are those of CSS, 96 an inch. Threads: values and functions without state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fairlead::topology {

// Pixels of a drawing whose text is 12 high.
inline constexpr double kCharacter = 6.7, kLine = 15, kPadding = 8, kGap = 14;

struct Block {
  std::string style;                 // a class of the style sheet
  std::vector<std::string> lines{};  // not escaped
  std::vector<Block> children{};
  std::optional<std::size_t> node{};  // of the graph
  double x = 0, y = 0, width = 0, height = 0;
};

/// How wide a line of text is.
[[nodiscard]] inline double width_of(const std::string& line) { return static_cast<double>(line.size()) * kCharacter; }

/// Lines below the drawing: short ones beside each other, long ones alone.
class Legend {
 public:
  explicit Legend(std::vector<std::string> lines) : lines_(std::move(lines)) {
    for (const std::string& line : lines_) {
      longest_ = std::max(longest_, width_of(line));
      if (may_stand_beside(line)) column_ = std::max(column_, width_of(line) + kGap);
    }
  }
  [[nodiscard]] double narrowest() const { return longest_; }
  /// Calls `put(x, y, line)` for each, y from 1 line on; gives how many lines high it is.
  template <typename Put>
  std::size_t lay_out(double width, const Put& put) const {
    const auto columns = column_ > 0 ? std::max<std::size_t>(1, static_cast<std::size_t>(width / column_)) : 1;
    std::size_t row = 0, used = columns;  // of the row
    for (const std::string& line : lines_) {
      const bool is_short = may_stand_beside(line);
      if (!is_short || used >= columns) {
        ++row;
        used = 0;
      }
      put(static_cast<double>(used) * column_, kLine * static_cast<double>(row), line);
      used = is_short ? used + 1 : columns;
    }
    return row;
  }

 private:
  /// A short one, and no heading.
  static bool may_stand_beside(const std::string& line) { return line.size() <= 60 && !line.ends_with(':'); }

  std::vector<std::string> lines_;
  double longest_ = 0, column_ = 0;
};

/// Of a whole drawing.
struct Size {
  double width = 0, height = 0;
};
[[nodiscard]] Size size_of(const Block& root, const Legend& legend);

/// The same boxes, placed: what does not fit beside goes below, so that the drawing comes out largest on a page,
/// upright or across; the narrowest of those.
[[nodiscard]] Block arrange(Block root, const Legend& legend);

}  // namespace fairlead::topology
