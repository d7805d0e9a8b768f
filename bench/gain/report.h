// What a comparison looks like to programs (one JSON document, docs/schemas/gain.schema.json), to a terminal (a table)
// and to a browser (one page that needs nothing else).
#pragma once

#include <string>
#include <vector>

#include "bench/base/json.h"
#include "bench/gain/analysis.h"

namespace fairlead::bench {

struct GainReport {
  GainPlan plan;
  SideFacts baseline, candidate;
  Analysis analysis;
  std::vector<std::string> warnings;
  bool verified = false, interrupted = false;
  std::string error = {};  // if it was interrupted because it failed: why
};

[[nodiscard]] Json to_json(const GainReport& report);
/// What such documents have in common: all but the head, the plan and what the primary comparison is.
[[nodiscard]] Json::Object findings_of(const GainReport& report);
/// The terms, the ratios and the verdict, as lines.
[[nodiscard]] std::vector<std::string> lines_of(const GainReport& report);
/// One HTML document with its drawings in it. It fetches nothing and runs nothing.
[[nodiscard]] std::string page_of(const GainReport& report);

/// The word for a verdict between the two sides: "rdma_faster", "unequal_terms" (statistics.h).
[[nodiscard]] std::string_view verdict_word(const GainReport& report, Verdict verdict);

// The parts of the page, one file each: drawings as SVG elements, in the colours of the page's style sheet.

/// All ratios with their intervals on one axis.
[[nodiscard]] std::string draw_ratios(const Analysis& analysis);
/// The primary comparison quad by quad, in the order in which they were measured, and the control's.
[[nodiscard]] std::string draw_quads(const Analysis& analysis);

/// "3.02 GB/s", "0.512 s/GB", "12.3 us": a metric's figure as people read it.
[[nodiscard]] std::string figure_text(Metric metric, double figure);

}  // namespace fairlead::bench
