#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "doctor/doctor.h"
#include "tests/golden.h"
#include "tests/made_machine.h"

namespace fairlead::doctor {
namespace {

TEST(Table, IsThatOfTheTuningPage) {
  const std::string page = file_text(FAIRLEAD_TUNING_PAGE), table = checks_as_markdown();
  EXPECT_NE(page.find(table), std::string::npos) << "docs/tuning.md must hold this table:\n" << table;
}

TEST(Table, NamesAreDifferentAndFitTheColumn) {
  std::set<std::string_view> names;
  for (const Check& check : all_checks()) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
    EXPECT_LE(check.name.size(), 22u) << check.name;
    EXPECT_TRUE(check.matters.ends_with(".")) << check.name;
  }
}

TEST(Examine, OnlyWhatIsAskedForInTheOrderOfTheTable) {
  const made::Machine nothing;
  const Subject subject = read_subject(nothing.files(), {});
  const std::vector<std::string> only = {"mtu", "memlock", "no-such-check"};
  const std::vector<Answer> answers = examine(subject, only);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].check->name, "memlock");
  EXPECT_EQ(answers[1].check->name, "mtu");
}

TEST(Examine, OfAMachineThatShowsNothingThereIsNoProblem) {
  const made::Machine nothing;
  const std::vector<Answer> answers = examine(read_subject(nothing.files(), {}));
  EXPECT_EQ(answers.size(), all_checks().size());
  for (const auto& [check, finding] : answers) {
    EXPECT_TRUE(finding.verdict == Verdict::kNotHere || finding.verdict == Verdict::kOk) << check->name << finding.seen;
    EXPECT_FALSE(finding.seen.empty()) << check->name;
  }
}

TEST(Examine, WhatWantsSomethingSaysWhatToDo) {
  made::Machine machine;
  made::make_untuned_gpu_server(machine);
  const std::vector<Answer> answers = examine(read_subject(machine.files(), {}));
  const auto counts = count_verdicts(answers);
  EXPECT_GT(counts[static_cast<std::size_t>(Verdict::kAdvice)], 10u);
  for (const auto& [check, finding] : answers) {
    const bool wants = finding.verdict == Verdict::kAdvice || finding.verdict == Verdict::kProblem;
    EXPECT_EQ(finding.commands.empty(), !wants) << check->name;
  }
}

// Whatever this machine is: every check ends, and says something.
TEST(Examine, ThisMachine) {
  const std::vector<Answer> answers = examine(read_subject(SystemFiles(), probes_of_this_machine()));
  ASSERT_EQ(answers.size(), all_checks().size());
  for (const auto& [check, finding] : answers) EXPECT_FALSE(finding.seen.empty()) << check->name;
  EXPECT_THAT(render_text(answers), testing::HasSubstr(fmt::format("{} checks: ", answers.size())));
}

}  // namespace
}  // namespace fairlead::doctor
