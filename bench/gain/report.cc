#include "bench/gain/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/base/report_head.h"
#include "bench/base/sizes.h"

namespace fairlead::bench {
namespace {

Json to_json(const SideFacts& side) {
  return Json::Object{{"transport", side.transport}, {"device", side.device}, {"path", side.path},
                      {"link", side.link},           {"local", side.local},   {"remote", side.remote},
                      {"emulated", side.emulated}};
}

Json to_json(const std::vector<Term>& terms) {
  Json::Array list;
  for (const Term& term : terms) {
    list.push_back(Json::Object{{"name", term.name},
                                {"baseline", term.baseline},
                                {"candidate", term.candidate},
                                {"equal", term.equal},
                                {"remark", term.remark}});
  }
  return list;
}

Json::Object to_json(const Comparison& comparison, std::string_view verdict) {
  Json::Array quads;
  for (std::size_t i = 0; i < comparison.quads.size(); ++i) {
    const QuadFigures& quad = comparison.quads[i];
    quads.push_back(Json::Object{{"order", comparison.candidate_outside[i] ? "BAAB" : "ABBA"},
                                 {"baseline", Json::Array{quad.baseline[0], quad.baseline[1]}},
                                 {"candidate", Json::Array{quad.candidate[0], quad.candidate[1]}}});
  }
  return {{"metric", name_of(comparison.metric)},
          {"size_bytes", comparison.size},
          {"better", better_of(comparison.metric) == Better::kHigher ? "higher" : "lower"},
          {"baseline", comparison.baseline},
          {"candidate", comparison.candidate},
          {"ratio", comparison.ratio.ratio},
          {"ratio_low", comparison.ratio.low},
          {"ratio_high", comparison.ratio.high},
          {"confidence", comparison.ratio.confidence},
          {"verdict", verdict},
          {"quads", std::move(quads)}};
}

Json plan_json(const GainPlan& plan) {
  Json::Array sizes(plan.load.sizes.begin(), plan.load.sizes.end());
  Json::Array kinds;
  for (const Kind kind : plan.kinds) kinds.emplace_back(to_string(kind));
  return Json::Object{{"op", to_string(plan.load.op)},
                      {"kinds", std::move(kinds)},
                      {"sizes_bytes", std::move(sizes)},
                      {"depth", plan.load.depth},
                      {"footprint_bytes", plan.load.footprint},
                      {"quads", plan.quads},
                      {"sessions", plan.pairs_of_sessions()},
                      {"block_seconds", plan.block},
                      {"seed", plan.seed},
                      {"slow_candidate", plan.slow_candidate}};
}

}  // namespace

std::string_view verdict_word(const GainReport& report, Verdict verdict) {
  return to_string(verdict, report.baseline.transport, report.candidate.transport);
}

Json to_json(const GainReport& report) {
  Json::Object fields = findings_of(report);
  fields.emplace_back("plan", plan_json(report.plan));
  fields.emplace_back("primary",
                      Json::Object{{"metric", name_of(report.plan.primary)}, {"size_bytes", report.plan.primary_size}});
  return report_head("fairlead.gain/1", std::move(fields));
}

Json::Object findings_of(const GainReport& report) {
  const Analysis& analysis = report.analysis;
  const Comparison* primary = analysis.primary();
  const auto of_primary = [primary](double Ratio::* field) {
    return primary != nullptr ? Json(primary->ratio.*field) : Json();
  };
  Json::Array results;
  for (const Comparison& each : analysis.results) {
    Json::Object fields = to_json(each, verdict_word(report, each.verdict));
    fields.emplace(fields.begin(), "role", each.primary ? "primary" : "secondary");
    results.emplace_back(std::move(fields));
  }
  Json::Array warnings(report.warnings.begin(), report.warnings.end());
  Json control;
  if (analysis.control) control = to_json(*analysis.control, to_string(analysis.control->verdict, "tcp", "tcp"));
  return {{"host", to_json(report.baseline.initiator.host)},
          {"target_host", to_json(report.baseline.target.host)},
          {"baseline", to_json(report.baseline)},
          {"candidate", to_json(report.candidate)},
          {"ratio", of_primary(&Ratio::ratio)},
          {"ratio_low", of_primary(&Ratio::low)},
          {"ratio_high", of_primary(&Ratio::high)},
          {"confidence", primary != nullptr ? primary->ratio.confidence : 0.0},
          {"verdict", verdict_word(report, primary != nullptr ? primary->verdict : Verdict::kInconclusive)},
          {"reason", analysis.reason},
          {"equal_terms", analysis.equal_terms},
          {"terms", to_json(analysis.terms)},
          {"results", std::move(results)},
          {"control", std::move(control)},
          {"warnings", std::move(warnings)},
          {"verified", report.verified},
          {"interrupted", report.interrupted},
          {"error", report.error.empty() ? Json() : Json(report.error)}};
}

std::string figure_text(Metric metric, double figure) {
  switch (metric) {
    case Metric::kBandwidth:
      return format_bytes(figure) + "/s";
    case Metric::kBytesPerCpuSecond:
      return format_bytes(figure) + "/CPU-s";
    case Metric::kInitiatorCpu:
    case Metric::kTargetCpu:
      return fmt::format("{:.3f} s/GB", figure);
    case Metric::kSamplesPerSecond:
      return fmt::format("{:.2f}/s", figure);
    default:
      return fmt::format("{:.2f} us", figure / 1e3);
  }
}

std::vector<std::string> lines_of(const GainReport& report) {
  std::vector<std::string> lines = {"", "Terms, which have to be equal:"};
  for (const Term& term : report.analysis.terms) {
    std::string values = term.baseline == term.candidate ? term.baseline : term.baseline + " | " + term.candidate;
    lines.push_back(fmt::format("  {:<8} {:<20} {}{}{}", term.equal ? "equal" : "UNEQUAL", term.name, values,
                                term.remark.empty() ? "" : "  - ", term.remark));
  }
  lines.emplace_back();
  lines.push_back(fmt::format("{:<40} {:>15} {:>15} {:>7} {:>17}  {}", "candidate against baseline, above 1: better",
                              report.baseline.transport, report.candidate.transport, "ratio", "interval", "verdict"));
  const auto line = [&](std::string_view name, const Comparison& each, std::string_view verdict) {
    lines.push_back(fmt::format("{:<43} {:>15} {:>15} {:>7.3f} {:>8.3f} {:>8.3f}  {}", name,
                                figure_text(each.metric, each.baseline), figure_text(each.metric, each.candidate),
                                each.ratio.ratio, each.ratio.low, each.ratio.high, verdict));
  };
  for (const Comparison& each : report.analysis.results) {
    line(words_of(each) + (each.primary ? " (primary)" : ""), each, verdict_word(report, each.verdict));
  }
  if (report.analysis.control) {
    const Comparison& control = *report.analysis.control;
    line("control: " + std::string(report.baseline.transport) + " beside itself", control,
         to_string(control.verdict, "tcp", "tcp"));
  }
  lines.emplace_back();
  if (const Comparison* primary = report.analysis.primary()) {
    lines.push_back(fmt::format("{}: {} {:.3f}, {:g} % interval {:.3f} to {:.3f} ({})",
                                verdict_word(report, primary->verdict), words_of(*primary), primary->ratio.ratio,
                                primary->ratio.confidence * 100, primary->ratio.low, primary->ratio.high,
                                report.analysis.reason));
  } else {
    lines.push_back("inconclusive: " + report.analysis.reason);
  }
  if (report.interrupted) lines.emplace_back("interrupted: what stands above is all that was measured");
  return lines;
}

}  // namespace fairlead::bench
