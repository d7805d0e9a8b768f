#include "doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "doctor/checks.h"

namespace fairlead::doctor {
namespace {

std::vector<Check> gather() {
  std::vector<Check> checks;
  for (const auto part : {memory_checks(), cpu_checks(), pci_checks(), rdma_checks(), network_checks()}) {
    checks.insert(checks.end(), part.begin(), part.end());
  }
  return checks;
}

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kAdvice:
      return "advice";
    case Verdict::kProblem:
      return "problem";
    case Verdict::kNotHere:
      return "not here";
  }
  return "not here";
}

std::span<const Check> all_checks() {
  static const std::vector<Check> checks = gather();
  return checks;
}

std::vector<Answer> examine(const Subject& subject, std::span<const std::string> only) {
  std::vector<Answer> answers;
  for (const Check& check : all_checks()) {
    if (!only.empty() && std::find(only.begin(), only.end(), check.name) == only.end()) continue;
    Finding finding = check.look(subject);
    finding.seen = printable(finding.seen);  // files of another machine may hold anything
    for (std::string& command : finding.commands) command = printable(command);
    answers.push_back({&check, std::move(finding)});
  }
  return answers;
}

std::array<std::size_t, kVerdicts> count_verdicts(std::span<const Answer> answers) {
  std::array<std::size_t, kVerdicts> counts{};
  for (const Answer& answer : answers) ++counts[static_cast<std::size_t>(answer.finding.verdict)];
  return counts;
}

std::string render_text(std::span<const Answer> answers) {
  std::string text;
  for (const auto& [check, finding] : answers) {
    text += fmt::format("{:<8}  {:<22}  {}\n", to_string(finding.verdict), check->name, finding.seen);
    if (finding.verdict != Verdict::kAdvice && finding.verdict != Verdict::kProblem) continue;
    text += fmt::format("          why: {}\n", check->matters);
    for (const std::string& command : finding.commands) text += fmt::format("          do:  {}\n", command);
  }
  const auto counts = count_verdicts(answers);
  const auto of = [&counts](Verdict verdict) { return counts[static_cast<std::size_t>(verdict)]; };
  const std::size_t problems = of(Verdict::kProblem);
  return text + fmt::format("{} check{}: {} ok, {} advice, {} problem{}, {} not here\n", answers.size(),
                            answers.size() == 1 ? "" : "s", of(Verdict::kOk), of(Verdict::kAdvice), problems,
                            problems == 1 ? "" : "s", of(Verdict::kNotHere));
}

std::string checks_as_markdown() {
  std::string table = "| check | looks at | why it matters |\n| --- | --- | --- |\n";
  for (const Check& check : all_checks()) {
    table += fmt::format("| `{}` | {} | {} |\n", check.name, check.looks_at, check.matters);
  }
  return table;
}

}  // namespace fairlead::doctor
