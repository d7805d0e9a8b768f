// Status, log, CRC and descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/crc.h"
#include "base/printable.h"
#include "base/unique_fd.h"
#include "fairlead/log.h"
#include "fairlead/status.h"

namespace fairlead {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32, MatchesTheCheckValueOfTheStandard) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Crc32, Chains) {
  std::string text(100'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 131 >> 3);
  const auto all = bytes_of(text);
  for (std::size_t cut : {0ul, 1ul, 15ul, 4096ul, 99'999ul, 100'000ul}) {
    EXPECT_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), crc32(all)) << cut;
  }
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwns) {
  const int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(raw, 0);
  {
    UniqueFd first(raw);
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): the state after a move is documented
    EXPECT_EQ(second.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(UniqueFd, ReleaseGivesAway) {
  const int raw = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    EXPECT_EQ(UniqueFd(raw).release(), raw);
  }
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
}

TEST(Status, SaysCodeAndSentence) {
  EXPECT_EQ(Status().to_string(), "ok");
  EXPECT_EQ(Status(Code::kNotFound, "no such host 'x'").to_string(), "not found: no such host 'x'");
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    EXPECT_NE(to_string(static_cast<Code>(code)), "unknown code") << code;
  }
}

TEST(Result, HoldsOneSide) {
  const Result<int> value(7);
  EXPECT_TRUE(value.status().ok());
  EXPECT_EQ(*value, 7);
  const Result<int> error(Code::kOutOfRange, "8 of 7");
  EXPECT_FALSE(error);
  EXPECT_EQ(error.status().code(), Code::kOutOfRange);
}

std::vector<std::string>& lines() {
  static std::vector<std::string> all;
  return all;
}

TEST(Log, DropsWhatIsBelowTheLevel) {
  set_log_sink([](LogLevel, std::string_view line) { lines().emplace_back(line); });
  set_log_level(LogLevel::kWarning);
  log(LogLevel::kInfo, "quiet");
  log(LogLevel::kError, "loud");
  set_log_level(LogLevel::kOff);
  log(LogLevel::kError, "silence");
  set_log_level(LogLevel::kWarning);
  set_log_sink(nullptr);
  EXPECT_EQ(lines(), std::vector<std::string>{"loud"});
}

TEST(Log, ShowsWhatWouldDriveATerminal) {
  lines().clear();
  set_log_sink([](LogLevel, std::string_view line) { lines().emplace_back(line); });
  log(LogLevel::kError, "peer 'a\x1b[2J\nfairlead: error: forged'");
  set_log_sink(nullptr);
  EXPECT_EQ(lines(), std::vector<std::string>{"peer 'a\\x1b[2J\\nfairlead: error: forged'"});
}

TEST(Printable, KeepsWhatCanBeSeenAndEscapesTheRest) {
  for (const std::string_view text : {"", "plain text, 'quoted' \\n", "Gr\u00fc\u00dfe \u4f60\u597d \U0001f600"}) {
    EXPECT_TRUE(is_printable(text)) << text;
    EXPECT_EQ(printable(text), text);
  }
  using namespace std::string_view_literals;
  for (const auto& [text, shown] : std::initializer_list<std::pair<std::string_view, std::string_view>>{
           {"\0"sv, "\\x00"},
           {"\x1b]0;title\a", "\\x1b]0;title\\x07"},
           {"a\r\n\tb\x7f", "a\\r\\n\\tb\\x7f"},
           {"\u009b1m", "\\xc2\\x9b1m"},         // a control sequence in one character of C1
           {"\u202etxt", "\\xe2\\x80\\xaetxt"},  // turns the line round
           {"\u2028", "\\xe2\\x80\\xa8"},
           {"\xc0\xaf", "\\xc0\\xaf"},           // overlong
           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // a surrogate
           {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
           {"\xe4\xbd", "\\xe4\\xbd"}}) {  // cut short
    EXPECT_FALSE(is_printable(text)) << shown;
    EXPECT_EQ(printable(text), shown);
  }
}

}  // namespace
}  // namespace fairlead
