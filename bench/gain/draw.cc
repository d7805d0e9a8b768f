#include <algorithm>
#include <cmath>

#include "base/svg.h"
#include "bench/gain/page.h"

namespace fairlead::bench {
namespace {

// Pixels of a drawing whose text is 13 high.
constexpr double kLeft = 300, kWidth = 420, kRight = 24, kRow = 26, kTop = 34, kBottom = 40;
constexpr double kMark = 5, kBar = 7;
constexpr double kQuadsHeight = 220;
// What an axis may be marked at: 1 and round ratios on either side.
constexpr double kTicks[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1,
                             1.05, 1.1,  1.25, 1.5, 2,   3,   5,   10,  20,  50,  100};
constexpr double kTicksApart = 44;

class Axis {
 public:
  Axis(double low, double high, double from, double to) : from_(from), to_(to) {
    low_ = std::log(std::min(low, 0.94)) - 0.02;
    high_ = std::log(std::max(high, 1.06)) + 0.02;
  }
  [[nodiscard]] double at(double ratio) const {
    return from_ + (to_ - from_) * (std::clamp(std::log(ratio), low_, high_) - low_) / (high_ - low_);
  }
  // 1 always, others as far as there is room between them.
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> chosen = {1};
    for (const double tick : kTicks) {
      const double log = std::log(tick);
      if (log < low_ || log > high_) continue;
      const auto near = [&](double other) { return std::abs(at(other) - at(tick)) < kTicksApart; };
      if (std::ranges::none_of(chosen, near)) chosen.push_back(tick);
    }
    std::ranges::sort(chosen);
    return chosen;
  }

 private:
  double low_, high_, from_, to_;
};

std::string interval_text(const Comparison& each) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", each.ratio.ratio, each.ratio.low, each.ratio.high);
}

void row(std::string& out, const Axis& axis, double y, std::string_view name, const Comparison& each,
         std::string_view kind) {
  const double from = axis.at(each.ratio.low), to = axis.at(each.ratio.high), x = axis.at(each.ratio.ratio);
  add(out, "<g class=\"{}\"><title>{}: {}</title>\n", kind, escape_xml(name), interval_text(each));
  add(out, "<text class=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kLeft - 12, y + 4.5, escape_xml(name));
  add(out, "<path d=\"M{:.1f} {:.1f}H{:.1f}M{:.1f} {:.1f}v{}M{:.1f} {:.1f}v{}\"/>\n", from, y, to, from, y - kBar,
      2 * kBar, to, y - kBar, 2 * kBar);
  if (kind == "primary") {
    add(out, "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>\n", x - kMark, y - kMark, 2 * kMark,
        2 * kMark);
  } else {
    add(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>\n", x, y, kMark - 0.5);
  }
  out += "</g>\n";
}

}  // namespace

void begin_drawing(std::string& out, double width, double height, std::string_view id, std::string_view title) {
  add(out,
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" role=\"img\" aria-labelledby=\"{}\">\n"
      "<title id=\"{}\">{}</title>\n",
      width, height, width, height, id, id, escape_xml(title));
}

std::string draw_ratios(const Analysis& analysis) {
  double low = 1, high = 1;
  const auto widen = [&](const Comparison& each) {
    low = std::min(low, each.ratio.low);
    high = std::max(high, each.ratio.high);
  };
  for (const Comparison& each : analysis.results) widen(each);
  if (analysis.control) widen(*analysis.control);
  const auto rows = static_cast<double>(analysis.results.size() + (analysis.control ? 1 : 0));
  const double bottom = kTop + rows * kRow;
  const Axis axis(low, high, kLeft, kLeft + kWidth);
  std::string out;
  begin_drawing(out, kLeft + kWidth + kRight, bottom + kBottom, "ratios",
                "Ratios with their intervals; above 1 the candidate is better");
  const double band = axis.at(1 / (1 + kNoDifference));
  add(out, "<rect class=\"band\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", band, kTop - 6,
      axis.at(1 + kNoDifference) - band, bottom - kTop + 6);
  for (const double tick : axis.ticks()) {
    add(out, "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
        tick == 1 ? "one" : "grid", axis.at(tick), kTop - 6, axis.at(tick), bottom);
    add(out, "<text class=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", axis.at(tick), bottom + 16, tick);
  }
  add(out, "<text class=\"end\" x=\"{:.1f}\" y=\"18\">baseline is better</text>\n", axis.at(1) - 8);
  add(out, "<text x=\"{:.1f}\" y=\"18\">candidate is better</text>\n", axis.at(1) + 8);
  double y = kTop + kRow / 2;
  for (const Comparison& each : analysis.results) {
    row(out, axis, y, words_of(each), each, each.primary ? "primary" : "secondary");
    y += kRow;
  }
  if (analysis.control) row(out, axis, y, "control: baseline beside itself", *analysis.control, "control");
  return out + "</svg>\n";
}

std::string draw_quads(const Analysis& analysis) {
  const Comparison* primary = analysis.primary();
  if (primary == nullptr) return {};
  const auto ratios = [](const Comparison& of) {
    std::vector<double> all;
    for (const QuadFigures& quad : of.quads) all.push_back(std::exp(log_advantage(quad, better_of(of.metric))));
    return all;
  };
  const std::vector<double> main = ratios(*primary);
  const std::vector<double> control = analysis.control ? ratios(*analysis.control) : std::vector<double>();
  double low = 1, high = 1;
  for (const std::vector<double>* all : {&main, &control}) {
    for (const double each : *all) {
      low = std::min(low, each);
      high = std::max(high, each);
    }
  }
  constexpr double kLeftOfQuads = 60, kAll = kLeft + kWidth + kRight;
  const Axis axis(low, high, kQuadsHeight, kTop);
  std::string out;
  begin_drawing(out, kAll, kQuadsHeight + kBottom, "quads",
                "The primary comparison quad by quad, in the order of their measurement");
  const double band = axis.at(1 + kNoDifference);
  add(out, "<rect class=\"band\" x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", kLeftOfQuads, band,
      kAll - kRight - kLeftOfQuads, axis.at(1 / (1 + kNoDifference)) - band);
  for (const double tick : axis.ticks()) {
    add(out, "<line class=\"{}\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", tick == 1 ? "one" : "grid",
        kLeftOfQuads, axis.at(tick), kAll - kRight, axis.at(tick));
    add(out, "<text class=\"end\" x=\"{}\" y=\"{:.1f}\">{:g}</text>\n", kLeftOfQuads - 8, axis.at(tick) + 4.5, tick);
  }
  const double step = (kAll - kRight - kLeftOfQuads) / static_cast<double>(std::max<std::size_t>(main.size(), 1));
  for (std::size_t i = 0; i < control.size(); ++i) {
    add(out,
        "<g class=\"control\"><title>control, quad {}: {:.3f}</title><circle cx=\"{:.1f}\" cy=\"{:.1f}\" "
        "r=\"3\"/></g>\n",
        i + 1, control[i], kLeftOfQuads + (static_cast<double>(i) + 0.75) * step, axis.at(control[i]));
  }
  for (std::size_t i = 0; i < main.size(); ++i) {
    add(out,
        "<g class=\"primary\"><title>quad {}: {:.3f}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" "
        "height=\"7\"/></g>\n",
        i + 1, main[i], kLeftOfQuads + (static_cast<double>(i) + 0.4) * step - 3.5, axis.at(main[i]) - 3.5);
  }
  add(out, "<text class=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">quads in the order of their measurement</text>\n",
      (kLeftOfQuads + kAll - kRight) / 2, kQuadsHeight + 28);
  return out + "</svg>\n";
}

}  // namespace fairlead::bench
