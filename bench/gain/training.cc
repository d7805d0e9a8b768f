#include "bench/gain/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace fairlead::bench {
namespace {

constexpr std::array<std::size_t, 4> kNodes = {1, 2, 4, 8};

// Bytes around the payload of a full packet: on the wire (preamble, Ethernet header, FCS, gap), and of the protocols.
constexpr double kEthernet = 38;
constexpr double kTcp = 52;   // IPv4, TCP with timestamps
constexpr double kRoce = 44;  // IPv4, UDP, BTH, ICRC

constexpr double kSoftroceWindow = 192 << 10;  // over sockets, however large these are (docs/softroce.md)

Comparison compare(const std::vector<TrainingQuad>& quads, const TrainingGainPlan& plan, std::size_t ranks) {
  Comparison comparison{.metric = Metric::kSamplesPerSecond,
                        .size = plan.gradient_bytes(),
                        .primary = true,
                        .ratio = {},
                        .quads = {},
                        .candidate_outside = {}};
  std::vector<double> baseline, candidate;
  for (const TrainingQuad& quad : quads) {
    QuadFigures figures;
    for (std::size_t i = 0; i < 2; ++i) {
      baseline.push_back(figures.baseline[i] = plan.samples_per_second(ranks, quad.baseline[i].step));
      candidate.push_back(figures.candidate[i] = plan.samples_per_second(ranks, quad.candidate[i].step));
    }
    comparison.quads.push_back(figures);
    comparison.candidate_outside.push_back(quad.candidate_outside);
  }
  comparison.baseline = median(std::move(baseline));
  comparison.candidate = median(std::move(candidate));
  return comparison;
}

TransportModel model_on(const TrainingSide& side, const TrainingGainPlan& plan, double link) {
  return link == 0 ? side.model : on_link(side.model, link, side.wire_share, plan.links_round_trip);
}

}  // namespace

double window_of(const SideFacts& side) noexcept {
  if (!side.target_buffer) return 0;
  if (side.transport == "tcp") return static_cast<double>(*side.target_buffer);
  return side.transport.starts_with("verbs:soft") ? kSoftroceWindow : 0;
}

double wire_share(const SideFacts& side) noexcept {
  if (side.payload == 0) return 1;
  const double payload = side.payload;
  return payload / (payload + kEthernet + (side.transport == "tcp" ? kTcp : kRoce));
}

TransportModel on_link(TransportModel model, double link, double wire_share, double longer) noexcept {
  model.link_bytes_per_second = link * wire_share;
  model.latency += longer / 2;
  model.round_trip = 2 * model.latency;
  return model;
}

TrainingReport report_of(TrainingRun run, TrainingGainPlan plan, std::vector<std::string> warnings) {
  TrainingReport report;
  report.plan = std::move(plan);
  const TrainingGainPlan& its = report.plan;
  report.ranks = run.ranks;
  report.baseline = std::move(run.baseline);
  report.candidate = std::move(run.candidate);
  report.gain.baseline = report.baseline.facts;
  report.gain.candidate = report.candidate.facts;
  report.gain.warnings = std::move(warnings);
  report.gain.verified = run.verified;
  report.gain.interrupted = its.stopped();

  Analysis& analysis = report.gain.analysis;
  analysis.terms = std::move(run.terms);
  analysis.terms.push_back(
      same_term("model", fmt::format("{}, {} ranks, {:g} ms to compute a step", its.training.model.name, run.ranks,
                                     its.training.step.compute_seconds * 1e3)));
  analysis.terms.push_back(same_term(
      "blocks", fmt::format("{} step{} each, in turn", its.training.steps, its.training.steps == 1 ? "" : "s")));
  analysis.equal_terms = all_equal(analysis.terms);
  if (!run.quads.empty()) analysis.results.push_back(compare(run.quads, its, run.ranks));
  if (!run.control.empty()) analysis.control = compare(run.control, its, run.ranks);
  judge(analysis, its.seed, report.gain.interrupted);

  if (run.quads.empty()) return report;  // no parameters
  std::set<std::size_t> nodes(kNodes.begin(), kNodes.end());
  nodes.insert(run.ranks);
  std::vector<double> links = its.links;
  links.insert(links.begin(), 0);
  for (const double link : links) {
    const TransportModel baseline = model_on(report.baseline, its, link),
                         candidate = model_on(report.candidate, its, link);
    for (const std::size_t n : nodes) {
      report.predictions.push_back({link, n, predict_step(its.training.model, its.training.step, baseline, n),
                                    predict_step(its.training.model, its.training.step, candidate, n)});
    }
    const bool better = rate_of(candidate) >= rate_of(baseline);
    report.thresholds.push_back({link, better,
                                 better ? intensity_for(kClaim, baseline, candidate, run.ranks)
                                        : intensity_for(kClaim, candidate, baseline, run.ranks)});
  }
  return report;
}

}  // namespace fairlead::bench
