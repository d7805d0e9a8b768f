#include <string>

#include "bench/base/sizes.h"
#include "bench/gain/page.h"
#include "bench/gain/training.h"

namespace fairlead::bench {
namespace {

// The ratio that was measured here, beside that which is told.
void claim(std::string& out, const TrainingReport& report) {
  out +=
      "<section id=\"claim\" aria-labelledby=\"claim-title\">\n<h2 id=\"claim-title\">Beside the claim</h2>\n"
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Ratios\">\n<table id=\"claim-table\">\n"
      "<caption>How many times as many samples a second as over TCP</caption>\n<thead><tr><th "
      "scope=\"col\">where</th><th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"n\">low</th><th "
      "scope=\"col\" class=\"n\">high</th><th scope=\"col\">what is known of it</th></tr></thead>\n<tbody>\n";
  if (const Comparison* here = report.gain.analysis.primary()) {
    add(out,
        "<tr class=\"primary\"><th scope=\"row\">{} against {}, measured here</th><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td><td class=\"n\">{}</td><td>{}; {}</td></tr>\n",
        page_text(report.candidate.facts.transport), page_text(report.baseline.facts.transport),
        page_ratio(here->ratio.ratio), page_ratio(here->ratio.low), page_ratio(here->ratio.high),
        verdict_word(report.gain, here->verdict), page_text(words_of(report)));
  }
  add(out,
      "<tr><th scope=\"row\">Claimed elsewhere</th><td class=\"n\">{}</td><td class=\"n\"></td><td "
      "class=\"n\"></td><td>{}. Model, batch size, samples a second, MTU and TCP adapter were not "
      "published</td></tr>\n</tbody>\n</table>\n</div>\n",
      page_ratio(kClaim), page_text(kClaimSource));
  if (!report.thresholds.empty()) {
    add(out,
        "<p>A ratio of {:g} takes, by what was measured, so many bytes of gradients for each second of computation; "
        "this model has {}:</p>\n<ul>\n",
        kClaim, page_figure(report.intensity(), format_bytes(report.intensity())));
    for (const Threshold& each : report.thresholds)
      add(out, "<li>{}: {}</li>\n", link_text(each.link), page_text(words_of(report, each)));
    out += "</ul>\n";
  }
  out += "</section>\n";
}

void row(std::string& out, const TrainingReport& report, const Prediction& each) {
  const bool measured = each.link == 0 && each.nodes == report.ranks;
  const auto efficiency = [&](double step) {
    return page_figure(report.efficiency(step), fmt::format("{:.3f}", report.efficiency(step)));
  };
  const auto cell = [&](const std::string& figure) {
    add(out, "<td class=\"n\">{}</td>", measured ? figure : std::string());
  };
  add(out, "<tr class=\"{}\" data-link=\"{:g}\" data-nodes=\"{}\"><th scope=\"row\">{}</th><td class=\"n\">{}</td>",
      measured ? "primary" : "secondary", each.link * 8e-9, each.nodes, link_text(each.link), each.nodes);
  add(out, "<td class=\"n\">{}</td>", efficiency(each.baseline_step));
  cell(efficiency(report.baseline.step));
  add(out, "<td class=\"n\">{}</td>", efficiency(each.candidate_step));
  cell(efficiency(report.candidate.step));
  add(out, "<td class=\"n\">{}</td>", page_ratio(each.baseline_step / each.candidate_step));
  const Comparison* const primary = report.gain.analysis.primary();
  cell(primary != nullptr ? page_ratio(primary->ratio.ratio) : "");
  out += "</tr>\n";
}

void efficiencies(std::string& out, const TrainingReport& report) {
  const std::string baseline = page_text(report.baseline.facts.transport),
                    candidate = page_text(report.candidate.facts.transport);
  out +=
      "<section id=\"efficiency\" aria-labelledby=\"efficiency-title\">\n<h2 id=\"efficiency-title\">Efficiency by "
      "nodes</h2>\n";
  for (const Threshold& each : report.thresholds) {
    add(out, "<figure>\n{}<figcaption class=\"remark\">{}</figcaption>\n</figure>\n",
        draw_efficiency(report, each.link),
        each.link == 0
            ? fmt::format("This link. Square and filled circle: measured, of {} ranks. Lines: predicted.", report.ranks)
            : link_text(each.link) + ". Predicted, not measured.");
  }
  add(out,
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Efficiency\">\n<table "
      "id=\"efficiency-table\">\n<caption>Computing time by step time: 1 is what one node alone has. What is not "
      "measured is predicted from four measured parameters of each transport, each node with the cores of a rank "
      "here</caption>\n<thead><tr><th scope=\"col\">link</th><th scope=\"col\" class=\"n\">nodes</th><th "
      "scope=\"col\" class=\"n\">{0}, predicted</th><th scope=\"col\" class=\"n\">measured</th><th scope=\"col\" "
      "class=\"n\">{1}, predicted</th><th scope=\"col\" class=\"n\">measured</th><th scope=\"col\" class=\"n\">ratio, "
      "predicted</th><th scope=\"col\" class=\"n\">measured</th></tr></thead>\n<tbody>\n",
      baseline, candidate);
  for (const Prediction& each : report.predictions) row(out, report, each);
  out += "</tbody>\n</table>\n</div>\n</section>\n";
}

std::string method(const TrainingReport& report) {
  const TrainingGainPlan& plan = report.plan;
  const StepOptions& step = plan.training.step;
  std::string items;
  add(items, "<li>{}</li>\n", page_text(words_of(report)));
  add(items, "<li>The model: {}</li>\n", page_text(plan.training.model.source));
  add(items, "<li>Gradients of {}, fused up to {}, {}; {} samples a rank and step that is not scaled</li>\n",
      to_string(plan.training.dtype), format_bytes(step.fusion_bytes),
      step.overlap ? "summed while later ones are computed" : "summed when all are known", plan.batch);
  add(items,
      "<li>{} quads of four blocks of {} step{}, ABBA or BAAB in random order (seed {}); every element of every sum "
      "{}</li>\n",
      plan.quads, plan.training.steps, plan.training.steps == 1 ? "" : "s", plan.seed,
      report.gain.verified ? "verified" : "not verified");
  if (report.predictions.empty()) return items;
  for (const TrainingSide* side : {&report.baseline, &report.candidate})
    add(items, "<li>{}</li>\n", page_text(words_of(report, *side)));
  return items;
}

}  // namespace

std::string page_of(const TrainingReport& report) {
  std::string story;
  claim(story, report);
  if (!report.predictions.empty()) efficiencies(story, report);
  return page_of(report.gain, {.title = fmt::format("{} over {} against {}", report.plan.training.model.name,
                                                    report.candidate.facts.transport, report.baseline.facts.transport),
                               .story = std::move(story),
                               .method = method(report)});
}

}  // namespace fairlead::bench
