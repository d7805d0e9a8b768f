#include "bench/gain/page.h"

#include "base/printable.h"
#include "base/svg.h"
#include "base/version/build_info.h"
#include "bench/base/sizes.h"

namespace fairlead::bench {
namespace {

// Dark on light or light on dark as the reader prefers; on paper always dark on light. What can scroll can be reached
// by keyboard.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f23; --soft: #57606a; --rule: #d0d7de; --band: #e6f2e6;
  --main: #0b5cad; --other: #6e4a00; --none: #6b7280; --bad: #a4161a; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181c; --ink: #e6e9ec; --soft: #a9b3bd; --rule: #3a424a;
  --band: #1f3322; --main: #6cb6ff; --other: #e0b060; --none: #9aa4ad; --bad: #ff8f8f; --panel: #1c2227; } }
@media print { :root { --ground: #ffffff; --ink: #000000; --soft: #333333; --rule: #999999; --band: #e6e6e6; --main: #000000;
  --other: #444444; --none: #777777; --bad: #000000; --panel: #ffffff; } section { break-inside: avoid; } .skip { display: none; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 60rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.verdict { border-left: .4rem solid var(--main); background: var(--panel); padding: .75rem 1rem; }
.verdict.unequal_terms, .verdict.inconclusive { border-color: var(--bad); }
.verdict strong { font-size: 1.3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--rule); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.primary { font-weight: 600; } td.unequal { color: var(--bad); font-weight: 600; } .remark { color: var(--soft); }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; } svg line { stroke-width: 1; }
svg .grid { stroke: var(--rule); } svg .one { stroke: var(--ink); } svg .band { fill: var(--band); }
svg path { fill: none; stroke-width: 2; } svg .primary path { stroke: var(--main); } svg .primary rect { fill: var(--main); }
svg .secondary path { stroke: var(--other); } svg .secondary circle { fill: var(--other); }
svg .control path { stroke: var(--none); } svg .control circle { fill: var(--ground); stroke: var(--none); stroke-width: 2; }
a { color: var(--main); } :focus-visible { outline: 3px solid var(--main); outline-offset: 2px; }
.skip { position: absolute; left: -100rem; } .skip:focus { left: 1rem; top: 1rem; background: var(--ground); padding: .5rem; }
)";

class Page {
 public:
  explicit Page(const GainReport& report) : report_(report) {}

  std::string write(const PageParts& parts) {
    const std::string& title = parts.title;
    add("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}: fairlead gain</title>\n"
        "<style>{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#results\">To the "
        "results</a>\n<main>\n<h1>{}</h1>\n",
        text(title), kStyle, text(title));
    verdict();
    out_ += parts.story;
    results();
    terms();
    method(parts.method);
    out_ += "</main>\n</body>\n</html>\n";
    return std::move(out_);
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    bench::add(out_, format, std::forward<Values>(values)...);
  }
  static std::string text(std::string_view words) { return page_text(words); }
  static std::string figure(double value, const std::string& shown) { return page_figure(value, shown); }
  static std::string ratio(double value) { return page_ratio(value); }

  void verdict() {
    const Comparison* primary = report_.analysis.primary();
    const std::string_view word = verdict_word(report_, primary != nullptr ? primary->verdict : Verdict::kInconclusive);
    add("<section id=\"verdict\" class=\"verdict {}\" aria-label=\"Verdict\">\n<p><strong>{}</strong></p>\n", word,
        word);
    if (primary != nullptr) {
      add("<p>{}: ratio {}, {:g} % interval {} to {}. Above 1 the candidate is better.</p>\n", text(words_of(*primary)),
          ratio(primary->ratio.ratio), primary->ratio.confidence * 100, ratio(primary->ratio.low),
          ratio(primary->ratio.high));
    }
    add("<p>{}.</p>\n", text(report_.analysis.reason));
    if (report_.interrupted) add("<p>Interrupted: what stands here is all that was measured.</p>\n");
    for (const std::string& warning : report_.warnings) add("<p>Warning: {}.</p>\n", text(warning));
    add("</section>\n");
  }

  void row(const Comparison& each, std::string_view role, const std::string& name, std::string_view word) {
    add("<tr class=\"{}\" data-metric=\"{}\" data-size=\"{}\"><th scope=\"row\">{}</th>"
        "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td>{}</td></tr>\n",
        role, name_of(each.metric), each.size, text(name),
        figure(each.baseline, figure_text(each.metric, each.baseline)),
        figure(each.candidate, figure_text(each.metric, each.candidate)), ratio(each.ratio.ratio),
        ratio(each.ratio.low), ratio(each.ratio.high), each.ratio.quads, word);
  }

  void results() {
    const Analysis& analysis = report_.analysis;
    add("<section id=\"results\" aria-labelledby=\"results-title\">\n<h2 id=\"results-title\">Results</h2>\n");
    add("<figure>\n{}<figcaption class=\"remark\">Square: the primary comparison, named beforehand, at {:g} %. Filled "
        "circles: "
        "secondary ones, whose intervals hold together at {:g} %. Hollow circle: the control. Band: what makes no "
        "difference.</figcaption>\n</figure>\n",
        draw_ratios(analysis), kConfidence * 100, kConfidence * 100);
    add("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Ratios\">\n<table id=\"ratios-table\">\n"
        "<caption>Medians of the blocks; the ratio is the median of the quads', and above 1 where the candidate is "
        "better"
        "</caption>\n<thead><tr><th scope=\"col\">what</th><th scope=\"col\" class=\"n\">{}</th><th scope=\"col\" "
        "class=\"n\">{}"
        "</th><th scope=\"col\" class=\"n\">ratio</th><th scope=\"col\" class=\"n\">low</th><th scope=\"col\" "
        "class=\"n\">high"
        "</th><th scope=\"col\" class=\"n\">quads</th><th scope=\"col\">verdict</th></tr></thead>\n<tbody>\n",
        text(report_.baseline.transport), text(report_.candidate.transport));
    for (const Comparison& each : analysis.results) {
      row(each, each.primary ? "primary" : "secondary", words_of(each) + (each.primary ? " (primary)" : ""),
          verdict_word(report_, each.verdict));
    }
    if (analysis.control) {
      row(*analysis.control, "control", "control: " + report_.baseline.transport + " beside itself",
          to_string(analysis.control->verdict, "tcp", "tcp"));
    }
    add("</tbody>\n</table>\n</div>\n");
    add("<figure>\n{}<figcaption class=\"remark\">Each quad's ratio of the primary comparison (squares) and of the "
        "control "
        "(circles).</figcaption>\n</figure>\n</section>\n",
        draw_quads(analysis));
  }

  void terms() {
    add("<section id=\"terms\" aria-labelledby=\"terms-title\">\n<h2 id=\"terms-title\">Terms</h2>\n"
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Terms\">\n<table id=\"terms-table\">\n"
        "<caption>What has to be equal for a ratio to be about the transports</caption>\n<thead><tr><th "
        "scope=\"col\">term</th>"
        "<th scope=\"col\">equal</th><th scope=\"col\">{}</th><th scope=\"col\">{}</th></tr></thead>\n<tbody>\n",
        text(report_.baseline.transport), text(report_.candidate.transport));
    for (const Term& term : report_.analysis.terms) {
      add("<tr><th scope=\"row\">{}</th><td class=\"{}\">{}</td><td>{}</td><td>{}{}</td></tr>\n", text(term.name),
          term.equal ? "equal" : "unequal", term.equal ? "yes" : "no", text(term.baseline), text(term.candidate),
          term.remark.empty() ? "" : fmt::format("<div class=\"remark\">{}</div>", text(term.remark)));
    }
    add("</tbody>\n</table>\n</div>\n</section>\n");
  }

  void method(const std::string& items) {
    const BuildInfo& build = build_info();
    const auto host = [](const HostInfo& info) {
      return fmt::format("{}, {} cores, {}", text(info.cpu_model), info.cores, text(info.kernel));
    };
    add("<section id=\"method\" aria-labelledby=\"method-title\">\n<h2 id=\"method-title\">How it was "
        "measured</h2>\n<ul>\n");
    add("<li>fairlead {} of commit {} ({})</li>\n", build.version, build.commit, build.build_type);
    add("<li>Host: {}; target: {}</li>\n", host(report_.baseline.initiator.host), host(report_.baseline.target.host));
    add("<li>Baseline: {}</li>\n<li>Candidate: {}</li>\n", text(report_.baseline.path), text(report_.candidate.path));
    out_ += items;
    add("<li>Intervals are bootstrapped over quads. What lies within {:g} % of 1 makes no "
        "difference.</li>\n</ul>\n</section>\n",
        kNoDifference * 100);
  }

  const GainReport& report_;
  std::string out_;
};

std::string method_of(const GainReport& report) {
  const GainPlan& plan = report.plan;
  std::string items =
      fmt::format("<li>{} quads of four blocks of {:g} s, ABBA or BAAB in random order (seed {}); data {}</li>\n",
                  plan.quads, plan.block, plan.seed, report.verified ? "verified" : "not verified");
  if (plan.slow_candidate > 0) {
    add(items, "<li>A check of the method: the candidate rested for {:g} % of the time that it ran</li>\n",
        plan.slow_candidate * 100);
  }
  return items;
}

}  // namespace

std::string page_text(std::string_view words) { return escape_xml(printable(words)); }

std::string page_figure(double value, std::string_view shown) {
  return fmt::format("<data value=\"{}\">{}</data>", Json(value).dump(), page_text(shown));
}

std::string page_ratio(double value) { return page_figure(value, fmt::format("{:.3f}", value)); }

std::string page_of(const GainReport& report, const PageParts& parts) { return Page(report).write(parts); }

std::string page_of(const GainReport& report) {
  return page_of(report, {.title = fmt::format("{} against {}", report.candidate.transport, report.baseline.transport),
                          .story = "",
                          .method = method_of(report)});
}

}  // namespace fairlead::bench
