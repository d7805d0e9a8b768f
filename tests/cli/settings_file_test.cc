// Settings of a file, read by themselves and as a command line takes them.
#include "cli/base/settings_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/base/args.h"

namespace fairlead::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string error_of(std::string_view text) {
  const auto read = parse_settings(text, "conf");
  return read ? "" : read.error().message();
}

TEST(SettingsFile, LinesCommentsAndBlanks) {
  const auto read =
      parse_settings("# what it is\n\n  listen =  0.0.0.0:7471 \r\nready-file=/a b/c=d#e\nstore =", "conf");
  ASSERT_TRUE(read) << read.error().to_string();
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ((*read)[0].name, "listen");
  EXPECT_EQ((*read)[0].value, "0.0.0.0:7471");
  EXPECT_EQ((*read)[0].line, 3U);
  EXPECT_EQ((*read)[1].value, "/a b/c=d#e");
  EXPECT_EQ((*read)[2].value, "");
}

TEST(SettingsFile, WhatIsWrongIsSaidWithItsLine) {
  EXPECT_THAT(error_of("\nlisten 7471\n"), HasSubstr("conf, line 2: 'listen 7471' is no setting"));
  EXPECT_THAT(error_of("= 1"), HasSubstr("conf, line 1: '= 1' is no setting"));
  EXPECT_THAT(error_of("a=1\nb=2\na=3"), HasSubstr("conf, line 3: 'a' stands in line 1 already"));
  EXPECT_THAT(error_of("a=\x1b[31m"), AllOf(HasSubstr("control characters"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(load_settings("/nowhere/conf").error().message(), HasSubstr("/nowhere/conf: No such file"));
  EXPECT_FALSE(load_settings("/"));
  EXPECT_THAT(load_settings("/dev/zero").error().message(), HasSubstr("more than 1048576 bytes"));
}

// A command with some settings, a file of them, and what came of it.
class ArgsFromAFile : public testing::Test {
 protected:
  ArgsFromAFile() : path_(std::filesystem::temp_directory_path() / ("fairlead-conf-" + std::to_string(::getpid()))) {}
  ~ArgsFromAFile() override { std::filesystem::remove(path_); }

  std::string parse(const std::string& file, std::vector<const char*> words) {
    std::ofstream(path_) << file;
    listen_ = "default", size_ = 0, once_ = false;
    Args args("serve", "Serves.", "");
    args.option("--listen,--at", "HOST", "Where", set_text(&listen_));
    args.option("--max-bytes", "SIZE", "How much", set_size(&size_, 1, 1 << 20));
    args.flag("--once", &once_, "Once");
    args.settings_file();
    testing::internal::CaptureStderr();
    const auto exit = args.parse(words);
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(!exit || *exit == kUsage);
    return exit ? errors : "";
  }
  std::string parse(const std::string& file) { return parse(file, {"--config", path_.c_str()}); }

  std::filesystem::path path_;
  std::string listen_;
  std::uint64_t size_ = 0;
  bool once_ = false;
};

TEST_F(ArgsFromAFile, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  EXPECT_EQ(parse("listen = file\nmax-bytes = 64K\nonce = yes\n"), "");
  EXPECT_EQ(listen_, "file");
  EXPECT_EQ(size_, 65536U);
  EXPECT_TRUE(once_);
  EXPECT_EQ(parse("at = file\n"), "") << "by its other name";
  EXPECT_EQ(listen_, "file");
  ::setenv("FAIRLEAD_LISTEN", "environment", 1);
  EXPECT_EQ(parse("listen = file\n"), "");
  EXPECT_EQ(listen_, "environment");
  EXPECT_EQ(parse("listen = file\n", {"--config", "/nowhere/conf", "--config", path_.c_str()}), "")
      << "the last counts";
  EXPECT_EQ(parse("listen = file\n", {"--listen", "flag", "--config", path_.c_str()}), "");
  EXPECT_EQ(listen_, "flag");
  ::unsetenv("FAIRLEAD_LISTEN");
  ::setenv("FAIRLEAD_CONFIG", path_.c_str(), 1);
  EXPECT_EQ(parse("listen = file\n", {}), "");
  ::unsetenv("FAIRLEAD_CONFIG");
  EXPECT_EQ(listen_, "file");
  EXPECT_EQ(parse("listen = file\n", {}), "");
  EXPECT_EQ(listen_, "default");
}

TEST_F(ArgsFromAFile, WhatIsWrongIsRefusedWithLineAndLegalValues) {
  const std::string line = path_.string() + ", line ";
  EXPECT_THAT(parse("\nlissten = x\n"), AllOf(HasSubstr(line + "2: there is no setting 'lissten'"),
                                              HasSubstr("Legal: listen, at, max-bytes, once")));
  EXPECT_THAT(parse("max-bytes = 4Q\n"), AllOf(HasSubstr(line + "1: max-bytes: "), HasSubstr("'4Q'")));
  EXPECT_THAT(parse("max-bytes = 2M\n"), AllOf(HasSubstr(line + "1: max-bytes: "), HasSubstr("legal: a size from 1")));
  EXPECT_THAT(parse("once = maybe\n"), AllOf(HasSubstr(line + "1: once: "), HasSubstr("legal: 1, true")));
  EXPECT_THAT(parse("config = other\n"), HasSubstr("there is no setting 'config'"));
  EXPECT_THAT(parse("max-bytes = 4Q\n", {"--max-bytes=1", "--config", path_.c_str()}), HasSubstr("'4Q'"))
      << "also where a flag says otherwise";
  EXPECT_THAT(parse("", {"--config", "/nowhere/conf"}), HasSubstr("/nowhere/conf"));
  EXPECT_THAT(parse("", {"--config"}), HasSubstr("--config"));
  EXPECT_THAT(parse("", {"--config", ""}), HasSubstr("--config names no file"));
  EXPECT_THAT(parse("", {"--config="}), HasSubstr("--config names no file"));
}

}  // namespace
}  // namespace fairlead::cli
