// What of a machine helps or hinders data on its way, checked one by one: each with a verdict, what was seen, and what
// to change as commands. Nothing is changed here.
//
// The table of checks is what docs/tuning.md shows; a test compares them. All is read from files of /proc and /sys
// below the subject's root, but for what only the kernel itself can answer (probes.h). Threads: functions without
// state.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/subject.h"

namespace fairlead::doctor {

enum class Verdict {
  kOk,
  kAdvice,   // it works, and could be faster or last longer
  kProblem,  // something will fail, or does
  kNotHere,  // the machine has nothing of the kind, or does not say
};
inline constexpr std::size_t kVerdicts = 4;

/// "ok", "advice", "problem", "not here".
[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct Finding {
  Verdict verdict = Verdict::kNotHere;
  std::string seen;                   // one line
  std::vector<std::string> commands;  // for advice and problem: shell commands as root; "# ..." where hands are needed
};

struct Check {
  std::string_view name;      // "huge-pages"
  std::string_view looks_at;  // the file or setting
  std::string_view matters;   // why, a sentence
  Finding (*look)(const Subject& subject);
};

/// All of them, in the order in which they are shown.
[[nodiscard]] std::span<const Check> all_checks();

struct Answer {
  const Check* check;
  Finding finding;
};

/// Those of `only`, in the order of the table; all of them where it is empty. Names that are none are left out. What
/// files say is made printable.
[[nodiscard]] std::vector<Answer> examine(const Subject& subject, std::span<const std::string> only = {});

/// How many have each verdict.
[[nodiscard]] std::array<std::size_t, kVerdicts> count_verdicts(std::span<const Answer> results);

/// A line for each, with why and the commands below those that want something, and the counts at the end.
[[nodiscard]] std::string render_text(std::span<const Answer> results);

/// The table of docs/tuning.md: a row for each check.
[[nodiscard]] std::string checks_as_markdown();

}  // namespace fairlead::doctor
