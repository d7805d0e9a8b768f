#include <fmt/format.h>

#include <algorithm>

#include "bench/base/report_head.h"
#include "bench/base/sizes.h"
#include "bench/gain/training.h"

namespace fairlead::bench {
namespace {

Json number_or_null(double value) { return value > 0 ? Json(value) : Json(); }

Json to_json(const TrainingReport& report, const TrainingSide& side) {
  const TransportModel& model = side.model;
  return Json::Object{{"step_seconds", side.step},
                      {"efficiency", report.efficiency(side.step)},
                      {"predicted_step_seconds", side.predicted_step},
                      {"bytes_per_core_second", model.bytes_per_core_second},
                      {"cores", model.cores},
                      {"link_bytes_per_second", model.link_bytes_per_second},
                      {"latency_seconds", model.latency},
                      {"window_bytes", number_or_null(model.window_bytes)},
                      {"wire_share", side.wire_share}};
}

Json link_json(double link) { return link > 0 ? Json(link * 8e-9) : Json(); }

Json plan_json(const TrainingReport& report) {
  const TrainingGainPlan& plan = report.plan;
  const StepOptions& step = plan.training.step;
  return Json::Object{{"model", plan.training.model.name},
                      {"model_source", plan.training.model.source},
                      {"scale", plan.scale},
                      {"gradient_bytes", std::uint64_t{plan.gradient_bytes()}},
                      {"dtype", to_string(plan.training.dtype)},
                      {"ranks", std::uint64_t{report.ranks}},
                      {"batch", plan.batch},
                      {"compute_seconds", step.compute_seconds},
                      {"overlap", step.overlap},
                      {"fusion_bytes", std::uint64_t{step.fusion_bytes}},
                      {"steps_per_block", std::uint64_t{plan.training.steps}},
                      {"sum_bytes", plan.sum_bytes},
                      {"quads", plan.quads},
                      {"seed", plan.seed},
                      {"links_round_trip_seconds", plan.links_round_trip}};
}

}  // namespace

std::string link_text(double link) { return link > 0 ? fmt::format("{:g} Gb/s", link * 8e-9) : "this link"; }

std::string words_of(const TrainingReport& report) {
  const TrainingGainPlan& plan = report.plan;
  return fmt::format("{}{}: {} of gradients, {:.1f} ms to compute them (given, not measured), {} ranks",
                     plan.training.model.name, plan.scale == 1 ? "" : fmt::format(" scaled by {:g}", plan.scale),
                     format_bytes(plan.gradient_bytes()), plan.training.step.compute_seconds * 1e3, report.ranks);
}

std::string words_of(const TrainingReport& report, const TrainingSide& side) {
  const TransportModel& model = side.model;
  return fmt::format(
      "{:<12} a step {:.1f} ms, {:.2f} {}s/s, efficiency {:.3f}; predicted {:.1f} ms. {}/core-s on {:g} core{} a rank, "
      "{}/s over "
      "this link, {:.0f} us a ring step, window {}",
      side.facts.transport, side.step * 1e3, report.plan.samples_per_second(report.ranks, side.step),
      report.plan.training.model.sample, report.efficiency(side.step), side.predicted_step * 1e3,
      format_bytes(model.bytes_per_core_second), model.cores, model.cores == 1 ? "" : "s",
      format_bytes(model.link_bytes_per_second), model.latency * 1e6,
      model.window_bytes > 0 ? format_bytes(model.window_bytes) : "none known");
}

std::string words_of(const TrainingReport& report, const Threshold& threshold) {
  const std::string& who = (threshold.candidate ? report.candidate : report.baseline).facts.transport;
  if (!threshold.intensity) {
    return fmt::format("{} is the faster one, and less than {:g} times: for no model", who, kClaim);
  }
  return fmt::format("{} from {} on", who, format_bytes(*threshold.intensity));
}

Json to_json(const TrainingReport& report) {
  Json::Array predictions, thresholds;
  for (const Prediction& each : report.predictions) {
    predictions.push_back(Json::Object{{"link_gbps", link_json(each.link)},
                                       {"nodes", std::uint64_t{each.nodes}},
                                       {"baseline_step_seconds", each.baseline_step},
                                       {"candidate_step_seconds", each.candidate_step},
                                       {"baseline_efficiency", report.efficiency(each.baseline_step)},
                                       {"candidate_efficiency", report.efficiency(each.candidate_step)},
                                       {"ratio", each.baseline_step / each.candidate_step}});
  }
  for (const Threshold& each : report.thresholds) {
    thresholds.push_back(Json::Object{{"link_gbps", link_json(each.link)},
                                      {"faster", each.candidate ? "candidate" : "baseline"},
                                      {"bytes_per_compute_second", each.intensity ? Json(*each.intensity) : Json()}});
  }
  const bool measured = !report.predictions.empty();
  Json::Object fields = findings_of(report.gain);
  fields.emplace_back("plan", plan_json(report));
  fields.emplace_back("claim", Json::Object{{"ratio", kClaim}, {"source", kClaimSource}});
  fields.emplace_back("parameters", measured ? Json(Json::Object{{"baseline", to_json(report, report.baseline)},
                                                                 {"candidate", to_json(report, report.candidate)}})
                                             : Json());
  fields.emplace_back("bytes_per_compute_second", report.intensity());
  fields.emplace_back("twice_from", std::move(thresholds));
  fields.emplace_back("predictions", std::move(predictions));
  return report_head("fairlead.gain.training/1", std::move(fields));
}

std::vector<std::string> lines_of(const TrainingReport& report) {
  std::vector<std::string> lines = lines_of(report.gain);
  lines.push_back(fmt::format("claimed elsewhere: {:g} ({})", kClaim, kClaimSource));
  if (report.predictions.empty()) return lines;
  lines.emplace_back();
  lines.push_back(words_of(report));
  for (const TrainingSide* side : {&report.baseline, &report.candidate}) lines.push_back(words_of(report, *side));
  lines.emplace_back();
  lines.push_back(
      fmt::format("A ratio of {:g} takes, by what was measured, so many bytes of gradients for each second of "
                  "computation (this model has {}):",
                  kClaim, format_bytes(report.intensity())));
  for (const Threshold& each : report.thresholds)
    lines.push_back(fmt::format("  {:<10} {}", link_text(each.link), words_of(report, each)));
  lines.emplace_back();
  lines.push_back(fmt::format("Predicted efficiency, not measured; each node with the cores of a rank here: {} | {}",
                              report.baseline.facts.transport, report.candidate.facts.transport));
  for (const Prediction& each : report.predictions) {
    if (each.nodes == 1) lines.push_back(fmt::format("  {:<10}", link_text(each.link)));
    lines.back() += fmt::format("  {} node{} {:.2f} | {:.2f}", each.nodes, each.nodes == 1 ? "" : "s",
                                report.efficiency(each.baseline_step), report.efficiency(each.candidate_step));
  }
  return lines;
}

}  // namespace fairlead::bench
