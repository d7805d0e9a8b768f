#include "topology/svg_layout.h"

#include <array>

namespace fairlead::topology {
namespace {

// An A4 page within margins of a centimetre, in pixels of CSS (96 an inch).
constexpr double kPageShort = 718, kPageLong = 1046;

/// How wide a block may be, by how deep it lies: the machine, its sockets, what is in them. What does not fit beside
/// goes below.
using Widths = std::array<double, 3>;

void measure(Block* block, const Widths& widest, std::size_t depth = 0) {
  double text = 0;
  for (const std::string& line : block->lines) text = std::max(text, width_of(line));
  const double limit = widest[std::min(depth, widest.size() - 1)] - kPadding;
  double inner = 0, x = kPadding, y = kPadding + kLine * static_cast<double>(block->lines.size()), tallest = 0;
  for (Block& child : block->children) {
    measure(&child, widest, depth + 1);
    if (x > kPadding && x + child.width > limit) {
      x = kPadding;
      y += tallest + kGap;
      tallest = 0;
    }
    child.x = x;
    child.y = y + kGap / 2;
    x += child.width + kGap;
    inner = std::max(inner, x - kGap);
    tallest = std::max(tallest, child.height);
  }
  block->width = std::max(text + kPadding, inner) + kPadding;
  block->height = y + (block->children.empty() ? 0 : tallest + kGap) + kPadding / 2;
}

void place(Block* block, double x, double y) {
  block->x += x;
  block->y += y;
  for (Block& child : block->children) place(&child, block->x, block->y);
}

/// How large it comes out on a page, upright or across; 1: as large as it is drawn.
double scale_on_page(const Size& size) {
  const auto fits = [&size](double width, double height) {
    return std::min({1.0, width / size.width, height / size.height});
  };
  return std::max(fits(kPageShort, kPageLong), fits(kPageLong, kPageShort));
}

}  // namespace

Size size_of(const Block& root, const Legend& legend) {
  const double width = std::max(root.width, legend.narrowest());
  const std::size_t lines = legend.lay_out(width, [](double, double, const std::string&) {});
  return {width + 2 * kGap, root.height + 3 * kGap + kLine * static_cast<double>(lines)};
}

Block arrange(Block root, const Legend& legend) {
  constexpr double kNarrowest = 600, kWidest = 2200, kStep = 20;
  double best = 0;
  Widths chosen{};
  for (double outer = kNarrowest; outer <= kWidest; outer += kStep) {
    for (const int sockets : {1, 2, 3, 4}) {
      for (const int bridges : {1, 2, 3, 4}) {
        const double socket = (outer - kPadding) / sockets - kGap;
        const Widths widest{outer, socket, (socket - kPadding) / bridges - kGap};
        measure(&root, widest);
        const double scale = scale_on_page(size_of(root, legend));
        if (scale <= best + 1e-9) continue;
        best = scale;
        chosen = widest;
      }
    }
  }
  measure(&root, chosen);
  place(&root, kGap, kGap);
  return root;
}

}  // namespace fairlead::topology
