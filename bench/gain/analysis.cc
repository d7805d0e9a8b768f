#include "bench/gain/analysis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/base/sizes.h"

namespace fairlead::bench {
namespace {

constexpr std::uint64_t kControlSeed = 0x636f6e74726f6c;  // apart from those of the comparisons

// Without the quads that lack a figure.
Comparison compare(const std::vector<Quad>& quads, Metric metric, std::uint64_t size) {
  Comparison comparison{.metric = metric, .size = size, .ratio = {}, .quads = {}, .candidate_outside = {}};
  std::vector<double> baseline, candidate;
  const bool of_one_end = metric == Metric::kInitiatorCpu || metric == Metric::kTargetCpu;
  for (const Quad& quad : quads) {
    if (of_one_end && quad.baseline[0].one_host) comparison.claimable = false;
    QuadFigures figures;
    for (std::size_t i = 0; i < 2; ++i) {
      figures.baseline[i] = figure_of(quad.baseline[i], metric);
      figures.candidate[i] = figure_of(quad.candidate[i], metric);
    }
    const auto none = [](double figure) { return figure <= 0; };
    if (std::ranges::any_of(figures.baseline, none) || std::ranges::any_of(figures.candidate, none)) continue;
    comparison.quads.push_back(figures);
    comparison.candidate_outside.push_back(quad.candidate_outside);
    baseline.insert(baseline.end(), figures.baseline.begin(), figures.baseline.end());
    candidate.insert(candidate.end(), figures.candidate.begin(), figures.candidate.end());
  }
  comparison.baseline = median(std::move(baseline));
  comparison.candidate = median(std::move(candidate));
  return comparison;
}

void judge(Comparison& comparison, double confidence, std::uint64_t seed, bool equal_terms) {
  std::vector<double> logs;
  for (const QuadFigures& quad : comparison.quads) logs.push_back(log_advantage(quad, better_of(comparison.metric)));
  comparison.ratio = ratio_of(logs, confidence, seed);
  comparison.verdict = verdict_of(comparison.ratio, equal_terms);
}

bool claims(Verdict verdict) { return verdict == Verdict::kCandidate || verdict == Verdict::kBaseline; }

// Whether the difference is one that the control does not have, too.
bool beyond(const Ratio& ratio, const Ratio& control) {
  return ratio.low > std::max(1.0, control.high) || ratio.high < std::min(1.0, control.low);
}

std::string reason_of(const Analysis& analysis, bool interrupted) {
  const Comparison& primary = *analysis.primary();
  switch (primary.verdict) {
    case Verdict::kUnequalTerms: {
      std::vector<std::string_view> names;
      for (const Term& term : analysis.terms) {
        if (!term.equal) names.push_back(term.name);
      }
      return fmt::format("not equal: {}", fmt::join(names, ", "));
    }
    case Verdict::kNoDifference:
      return fmt::format("the interval lies within {:g} % of 1", kNoDifference * 100);
    case Verdict::kInconclusive:
      if (interrupted) return "it was interrupted: it did not end when its plan said";
      if (primary.quads.size() < kFewestQuads) {
        return fmt::format("{} quads are too few to say anything: {} are needed", primary.quads.size(), kFewestQuads);
      }
      if (analysis.control && claims(analysis.control->verdict)) {
        return "the control, the baseline beside itself, shows a difference, too: the machine was not steady enough";
      }
      return "the interval includes 1, and reaches further than what makes no difference: more quads narrow it";
    default:
      return "terms were equal, and the interval does not include 1";
  }
}

}  // namespace

Analysis analyse(const std::vector<Series>& all, std::vector<Term> terms, const GainPlan& plan, bool interrupted) {
  Analysis analysis;
  analysis.equal_terms = all_equal(terms);
  analysis.terms = std::move(terms);
  for (const Series& series : all) {
    for (const Metric metric : kMetrics) {
      if (kind_of(metric) != series.kind) continue;
      Comparison comparison = compare(series.quads, metric, series.size);
      comparison.primary = metric == plan.primary && series.size == plan.primary_size;
      if (comparison.quads.empty()) continue;
      if (comparison.primary && !series.control.empty())
        analysis.control = compare(series.control, metric, series.size);
      analysis.results.push_back(std::move(comparison));
    }
  }
  std::ranges::stable_partition(analysis.results, [](const Comparison& each) { return each.primary; });
  judge(analysis, plan.seed, interrupted);
  return analysis;
}

void judge(Analysis& analysis, std::uint64_t seed, bool interrupted) {
  if (analysis.control) judge(*analysis.control, kConfidence, seed ^ kControlSeed, true);
  const std::size_t secondary = analysis.results.size() - (analysis.primary() != nullptr ? 1 : 0);
  for (Comparison& each : analysis.results) {
    const double confidence = each.primary ? kConfidence : 1 - (1 - kConfidence) / static_cast<double>(secondary);
    judge(each, confidence, seed++, analysis.equal_terms);
  }
  if (analysis.primary() == nullptr) {
    analysis.reason = "it was interrupted before the primary comparison had a figure";
    return;
  }
  const bool unsteady = analysis.control && claims(analysis.control->verdict);
  for (Comparison& each : analysis.results) {
    if (!claims(each.verdict) && each.verdict != Verdict::kNoDifference) continue;
    const bool stands = !unsteady || (claims(each.verdict) && beyond(each.ratio, analysis.control->ratio));
    if (interrupted || !stands || !each.claimable) each.verdict = Verdict::kInconclusive;
  }
  analysis.reason = reason_of(analysis, interrupted);
}

std::string words_of(const Comparison& comparison) {
  std::string name(name_of(comparison.metric));
  std::ranges::replace(name, '_', ' ');
  if (comparison.metric == Metric::kSamplesPerSecond) return name;
  return fmt::format("{} at {}", name, format_size(comparison.size));
}

}  // namespace fairlead::bench
