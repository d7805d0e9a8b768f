// Files that say anything, as a copy of another machine's may: every check still ends with one printable line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/printable.h"
#include "doctor/doctor.h"
#include "tests/made_machine.h"

namespace fairlead::doctor {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const made::Machine& machine) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(machine.root())) {  // links are not followed
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string garbled(std::string text, std::mt19937_64& random) {
  const std::vector<std::string> pieces = {
      "18446744073709551615", "-1", "max", "0x", ":", ",", "-", "\n", " ", "\x1b[2J", "\xff"};
  switch (random() % 4) {
    case 0:
      return text.substr(0, random() % (text.size() + 1));
    case 1:
      for (int i = 0; i < 3 && !text.empty(); ++i) text[random() % text.size()] = static_cast<char>(random());
      return text;
    case 2:
      for (int i = 0; i < 4; ++i) text.insert(random() % (text.size() + 1), pieces[random() % pieces.size()]);
      return text;
    default:
      text.clear();
      for (int i = 0; i < 12; ++i) text += pieces[random() % pieces.size()];
      return text;
  }
}

TEST(Garbled, EveryCheckEndsWithOnePrintableLine) {
  std::mt19937_64 random(12);  // NOLINT(cert-msc51-cpp): the same each time
  for (void (*const make)(made::Machine&) :
       {made::make_small_guest, made::make_tuned_server, made::make_untuned_gpu_server, made::make_pvrdma_guest,
        made::make_container}) {
    made::Machine machine;
    make(machine);
    const std::vector<fs::path> files = files_of(machine);
    ASSERT_FALSE(files.empty());
    for (int round = 0; round < 30; ++round) {
      for (int changes = 0; changes < 5; ++changes) {
        const fs::path& file = files[random() % files.size()];
        std::string text = machine.files().bytes(file.string().substr(machine.root().size()), 8192);
        std::ofstream(file, std::ios::binary) << garbled(std::move(text), random);
      }
      const std::vector<Answer> answers = examine(read_subject(machine.files(), {}));
      ASSERT_EQ(answers.size(), all_checks().size());
      for (const auto& [check, finding] : answers) {
        EXPECT_FALSE(finding.seen.empty()) << check->name;
        EXPECT_TRUE(is_printable(finding.seen)) << check->name;
        for (const std::string& command : finding.commands) EXPECT_TRUE(is_printable(command)) << check->name;
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::doctor
