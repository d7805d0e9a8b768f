#include "doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/words.h"
#include "bench/base/json.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"

namespace fairlead::cli {
namespace {

using namespace doctor;

Setter set_checks(std::vector<std::string>* names) {
  return [names](std::string_view text) {
    const std::span<const Check> checks = all_checks();
    for (const std::string& name : words_of(text)) {
      if (std::any_of(checks.begin(), checks.end(), [&name](const Check& check) { return check.name == name; })) {
        names->push_back(name);
        continue;
      }
      std::string legal;
      for (const Check& check : checks) legal += fmt::format("{}{}", legal.empty() ? "" : ", ", check.name);
      return Status(Code::kInvalidArgument, fmt::format("no check '{}'; legal: {}", name, legal));
    }
    return Status();
  };
}

bench::Json to_json(const std::vector<Answer>& answers) {
  bench::Json::Array checks;
  for (const auto& [check, finding] : answers) {
    bench::Json::Array commands;
    for (const std::string& command : finding.commands) commands.emplace_back(command);
    checks.emplace_back(bench::Json::Object{{"name", check->name},
                                            {"verdict", to_string(finding.verdict)},
                                            {"seen", finding.seen},
                                            {"why", check->matters},
                                            {"commands", std::move(commands)}});
  }
  bench::Json::Object counts;
  const auto numbers = count_verdicts(answers);
  for (std::size_t i = 0; i < kVerdicts; ++i) {
    counts.emplace_back(std::string(to_string(static_cast<Verdict>(i))), static_cast<std::uint64_t>(numbers[i]));
  }
  return bench::Json::Object{{"checks", std::move(checks)}, {"counts", std::move(counts)}};
}

}  // namespace

int doctor_command(Words words) {
  std::vector<std::string> only;
  std::string root;
  bool json = false;
  Args args("doctor", "Checks what of this machine helps or hinders data on its way, and says what to change.",
            "Examples:\n  fairlead doctor                        every check, with what to change as commands\n"
            "  fairlead doctor --only memlock,mtu     two of them\n"
            "  fairlead doctor --json                 for programs\n"
            "  fairlead doctor --root sosreport-gpu7  another machine, by a copy of its /proc and /sys\n\n"
            "It changes nothing. Verdicts: ok; advice (it works, and could be better); problem (something fails); not\n"
            "here. Exit codes: 0 no problem, 1 a problem, 2 wrong usage.");
  args.option("--only", "NAME,...", "Only these checks", set_checks(&only));
  args.option_by_itself("--root", "FOLDER",
                        "Read the files of /proc and /sys below this folder instead of this machine's",
                        set_text(&root));
  args.flag_by_itself("--json", &json, "Write the findings to standard output as JSON, instead");
  if (const auto exit = args.parse(words)) return *exit;

  const SystemFiles files(root);
  if (!files.exists("/proc")) {
    Console("doctor", json)
        .error(Status(Code::kNotFound,
                      fmt::format("there is no {}/proc; --root takes a folder that holds proc and sys", root)));
    return kFailure;
  }
  const Subject subject = read_subject(files, root.empty() ? probes_of_this_machine() : Probes());
  const std::vector<Answer> answers = examine(subject, only);
  if (json) {
    fmt::print("{}\n", to_json(answers).dump(2));
  } else {
    fmt::print("{}", render_text(answers));
  }
  return count_verdicts(answers)[static_cast<std::size_t>(Verdict::kProblem)] == 0 ? kSuccess : kFailure;
}

}  // namespace fairlead::cli
