#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/printable.h"
#include "base/svg.h"
#include "bench/trace/sweep.h"

namespace fairlead::bench {
namespace {

constexpr SvgStyle kStyle = {.light = "--need: #e6f2e6; --grid: #d8d8d8;",
                             .dark = "--need: #1f3322; --grid: #33383d;",
                             .rules =
                                 ".need { fill: var(--need); stroke: none; } .grid { stroke: var(--grid); }\n"
                                 ".bearable { stroke: var(--ink); stroke-dasharray: 2 3; }\n"
                                 ".curve { fill: none; stroke-width: 2; stroke-linejoin: round; }\n"
                                 ".middle { text-anchor: middle; } .end { text-anchor: end; }\n"};

// Pixels of a drawing whose text is 12 high.
constexpr double kLeft = 70, kTop = 62, kPlotWidth = 560, kPlotHeight = 340, kRight = 110, kLine = 16;
constexpr double kCharacter = 6.7, kLeastWidth = kLeft + kPlotWidth + kRight;
constexpr double kNeedFrom = 5'000, kNeedTo = 20'000;  // ns; arXiv 2401.13354
constexpr double kLeastOverhead = 1e-3, kMostOverhead = 1e4;
constexpr std::array kDashes = {"none", "9 4", "3 3", "12 3 3 3", "2 5", "16 5", "6 2 2 2 2 2", "1 2"};

class Drawing {
 public:
  Drawing(const Sweep& sweep, const Trace& trace) : sweep_(sweep), trace_(trace) {
    double first = kNeedFrom, last = kNeedTo, most = 2 * kBearable;
    for (const Curve& curve : sweep_.curves) {
      for (const Curve::Point& point : curve.between) {
        first = std::min(first, point.rtt_ns);
        last = std::max(last, point.rtt_ns);
        most = std::max(most, point.overhead);
      }
    }
    x_from_ = std::floor(std::log10(first));
    x_to_ = std::max(std::ceil(std::log10(last)), x_from_ + 1);
    y_from_ = std::log10(kLeastOverhead);
    y_to_ = std::ceil(std::log10(std::min(most, kMostOverhead)));
  }

  std::string draw() {
    const std::vector<std::string> words = legend();
    double width = kLeastWidth;
    for (const std::string& line : words) {
      width = std::max(width, kLeft + static_cast<double>(line.size()) * kCharacter + kLine);
    }
    const double bottom = kTop + kPlotHeight;
    const double height = bottom + 54 + kLine * static_cast<double>(words.size() + sweep_.curves.size());
    out_ = svg_head(width, height, printable(trace_.name) + ": overhead of a remote device", kStyle);
    text(kLeft, 24, "",
         fmt::format("{}: how much longer a step takes with its device elsewhere", printable(trace_.name)));
    text(kLeft, 42, "", "over the round trip (emulated)");
    axes(bottom);
    curves();
    double y = bottom + 54;
    for (std::size_t i = 0; i < sweep_.curves.size(); ++i, y += kLine) key(i, y);
    for (const std::string& line : words) {
      text(kLeft, y, "", line);
      y += kLine;
    }
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  [[nodiscard]] double x(double rtt_ns) const {
    return kLeft + kPlotWidth * (std::log10(rtt_ns) - x_from_) / (x_to_ - x_from_);
  }
  [[nodiscard]] double y(double overhead) const {
    const double place = std::log10(std::clamp(overhead, kLeastOverhead, kMostOverhead));
    return kTop + kPlotHeight * (y_to_ - place) / (y_to_ - y_from_);
  }

  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }
  void text(double at_x, double at_y, std::string_view style, const std::string& words) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, at_x, at_y, escape_xml(words));
  }
  void line(std::string_view style, double x1, double y1, double x2, double y2) {
    add("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style, x1, y1, x2, y2);
  }

  void axes(double bottom) {
    // What is published as the need: round trips, and at most 5 %.
    add("<rect class=\"need\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", x(kNeedFrom), kTop,
        x(kNeedTo) - x(kNeedFrom), kPlotHeight);
    text((x(kNeedFrom) + x(kNeedTo)) / 2, kTop - 5, "middle", "published need");
    for (double decade = x_from_; decade <= x_to_; ++decade) {
      const double ns = std::pow(10, decade);
      line("grid", x(ns), kTop, x(ns), bottom);
      text(x(ns), bottom + 16, "middle", format_ns(ns));
    }
    for (double decade = y_from_; decade <= y_to_; ++decade) {
      const double overhead = std::pow(10, decade);
      line("grid", kLeft, y(overhead), kLeft + kPlotWidth, y(overhead));
      text(kLeft - 6, y(overhead) + 4, "end", fmt::format("{:g} %", overhead * 100));
    }
    line("bearable", kLeft, y(kBearable), kLeft + kPlotWidth, y(kBearable));
    text(kLeft - 6, y(kBearable) + 4, "end", fmt::format("{:.3g} %", kBearable * 100));
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", kLeft, kTop, kPlotWidth, kPlotHeight);
    text(kLeft + kPlotWidth / 2, bottom + 33, "middle", "round trip");
  }

  [[nodiscard]] static std::string stroke(std::size_t curve) {
    return fmt::format("stroke=\"var(--ink{})\" stroke-dasharray=\"{}\"", curve % kSvgInks,
                       kDashes[curve % kDashes.size()]);
  }

  void curves() {
    std::vector<std::pair<double, std::size_t>> ends;  // where each would be named
    for (std::size_t i = 0; i < sweep_.curves.size(); ++i) {
      const Curve& curve = sweep_.curves[i];
      std::string points;
      for (const Curve::Point& point : curve.between) {
        fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", x(point.rtt_ns), y(point.overhead));
      }
      add("<polyline class=\"curve\" {} points=\"{}\"/>\n", stroke(i), points);
      for (const Curve::Point& point : curve.points) {
        add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"var(--ink{})\"/>\n", x(point.rtt_ns),
            y(point.overhead), i % kSvgInks);
      }
      ends.emplace_back(y(curve.between.back().overhead), i);
    }
    std::ranges::sort(ends);
    double free = 0;
    for (const auto& [wanted, i] : ends) {  // apart, where curves end together
      const double at = std::max(wanted + 4, free);
      text(kLeft + kPlotWidth + 8, at, "", format_bandwidth(sweep_.curves[i].bits_per_second));
      free = at + 13;
    }
  }

  void key(std::size_t i, double at_y) {
    const Curve& curve = sweep_.curves[i];
    add("<line class=\"curve\" {} x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", stroke(i), kLeft,
        at_y - 4, kLeft + 44, at_y - 4);
    text(kLeft + 52, at_y, "", fmt::format("{}: {}", format_bandwidth(curve.bits_per_second), words_of(curve)));
  }

  [[nodiscard]] static std::string words_of(const Curve& curve) {
    if (!curve.longest_rtt_ns) return fmt::format("more than {:.3g} % with any round trip", kBearable * 100);
    if (*curve.longest_rtt_ns >= kLongestRoundTrip) {
      return fmt::format("within {:.3g} % up to {} and more", kBearable * 100, format_ns(kLongestRoundTrip));
    }
    return fmt::format("within {:.3g} % up to a round trip of {}", kBearable * 100, format_ns(*curve.longest_rtt_ns));
  }

  [[nodiscard]] std::vector<std::string> legend() const {
    const TraceTotals totals = totals_of(trace_);
    return {fmt::format("A step here takes {}; {} calls, {} of them blocking, {:.3g} MB out, {:.3g} MB back.",
                        format_ns(sweep_.local_ns), trace_.records.size(), totals.blocking,
                        static_cast<double>(totals.bytes_out) / 1e6, static_cast<double>(totals.bytes_back) / 1e6),
            fmt::format("Rule of thumb: {:.3g} % of the step for each call that waits, {}.", kBearable * 100,
                        format_ns(sweep_.rule_ns)),
            "Published need: round trips of 5 to 20 us at 100s of Gb/s for less than 5 % (arXiv 2401.13354).",
            fmt::format("Overheads below {:.3g} % are drawn at {:.3g} %.", kLeastOverhead * 100, kLeastOverhead * 100)};
  }

  const Sweep& sweep_;
  const Trace& trace_;
  double x_from_ = 0, x_to_ = 0, y_from_ = 0, y_to_ = 0;  // decades
  std::string out_;
};

}  // namespace

std::string draw(const Sweep& sweep, const Trace& trace) { return Drawing(sweep, trace).draw(); }

}  // namespace fairlead::bench
