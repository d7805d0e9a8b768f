#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/svg.h"
#include "bench/gain/page.h"
#include "bench/gain/training.h"

namespace fairlead::bench {
namespace {

// Pixels of a drawing whose text is 13 high.
constexpr double kLeft = 60, kRight = 180, kTop = 24, kBottom = 44, kWidth = 460, kHeight = 200;
constexpr double kMark = 5;
constexpr double kLabelsApart = 18;
constexpr double kTicks[] = {0, 0.25, 0.5, 0.75, 1};

double y_of(double efficiency) { return kTop + kHeight * (1 - std::clamp(efficiency, 0.0, 1.0)); }

// Nodes double from step to step of the axis.
double x_of(std::size_t nodes, std::size_t most) {
  const double span = std::log2(static_cast<double>(std::max<std::size_t>(most, 2)));
  return kLeft + kWidth * std::log2(static_cast<double>(nodes)) / span;
}

struct Line {
  const TrainingSide* side;
  double Prediction::* step;
  const char* kind;  // of the style sheet
  const char* role;
};

void draw_line(std::string& out, const TrainingReport& report, const std::vector<Prediction>& points, const Line& line,
               double label_y) {
  const std::size_t most = points.back().nodes;
  add(out, "<g class=\"{}\"><title>{}, predicted:", line.kind, escape_xml(line.side->facts.transport));
  for (const Prediction& each : points)
    add(out, " {} at {}", fmt::format("{:.3f}", report.efficiency(each.*line.step)), each.nodes);
  out += "</title><path d=\"";
  for (const Prediction& each : points) {
    add(out, "{}{:.1f} {:.1f}", &each == points.data() ? 'M' : 'L', x_of(each.nodes, most),
        y_of(report.efficiency(each.*line.step)));
  }
  add(out, "\"{}/></g>\n", line.side == &report.baseline ? " stroke-dasharray=\"6 4\"" : "");
  add(out, "<text x=\"{:.1f}\" y=\"{:.1f}\">{} ({})</text>\n", kLeft + kWidth + 10, label_y,
      escape_xml(line.side->facts.transport), line.role);
  if (points.front().link != 0) return;
  const double efficiency = report.efficiency(line.side->step), x = x_of(report.ranks, most), y = y_of(efficiency);
  add(out, "<g class=\"{}\"><title>{}, measured: {:.3f} at {}</title>", line.kind,
      escape_xml(line.side->facts.transport), efficiency, report.ranks);
  if (line.side == &report.candidate) {
    add(out, "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/></g>\n", x - kMark, y - kMark, 2 * kMark,
        2 * kMark);
  } else {
    add(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/></g>\n", x, y, kMark);
  }
}

}  // namespace

std::string draw_efficiency(const TrainingReport& report, double link) {
  std::vector<Prediction> points;
  std::ranges::copy_if(report.predictions, std::back_inserter(points),
                       [&](const auto& each) { return each.link == link; });
  std::string out;
  if (points.empty()) return out;
  const std::string id = link == 0 ? "efficiency-here" : fmt::format("efficiency-{:g}", link * 8e-9);
  begin_drawing(out, kLeft + kWidth + kRight, kTop + kHeight + kBottom, id,
                fmt::format("Efficiency by nodes over {}", link_text(link)));
  for (const double tick : kTicks) {
    add(out, "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
        tick == 1 ? "one" : "grid", kLeft, y_of(tick), kLeft + kWidth, y_of(tick));
    add(out, "<text class=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{:g}</text>\n", kLeft - 8, y_of(tick) + 4.5, tick);
  }
  for (const Prediction& each : points) {
    add(out, "<text class=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x_of(each.nodes, points.back().nodes),
        kTop + kHeight + 18, each.nodes);
  }
  add(out, "<text class=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">nodes</text>\n", kLeft + kWidth / 2, kTop + kHeight + 36);
  const Line baseline{&report.baseline, &Prediction::baseline_step, "secondary", "baseline"},
      candidate{&report.candidate, &Prediction::candidate_step, "primary", "candidate"};
  // Names at the ends of their lines, apart where these are not.
  double low = y_of(report.efficiency(points.back().baseline_step)),
         high = y_of(report.efficiency(points.back().candidate_step));
  if (std::abs(low - high) < kLabelsApart) (low > high ? low : high) = std::min(low, high) + kLabelsApart;
  draw_line(out, report, points, baseline, low + 4.5);
  draw_line(out, report, points, candidate, high + 4.5);
  return out + "</svg>\n";
}

}  // namespace fairlead::bench
