#include "cli/base/args.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "cli/base/engine_options.h"

namespace fairlead::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

struct Parsed {
  std::optional<int> exit;
  std::string errors;
  EngineConfig config;
  std::string file;
};

Parsed parse(std::vector<const char*> words) {
  Parsed parsed;
  Args args("push", "Sends a file.", "Examples:\n  fairlead push x");
  add_engine_options(args, &parsed.config);
  args.positional("FILE", "What to send", set_text(&parsed.file));
  CaptureStderr();
  parsed.exit = args.parse(words);
  parsed.errors = GetCapturedStderr();
  return parsed;
}

TEST(Args, FlagsAndPositionals) {
  const Parsed parsed =
      parse({"--transport", "verbs:soft0", "model", "--mtu=1024", "--gid-index=-1", "--path-timeout", "50"});
  ASSERT_FALSE(parsed.exit) << parsed.errors;
  EXPECT_EQ(parsed.config.transport, "verbs:soft0");
  EXPECT_EQ(parsed.config.verbs.mtu, 1024U);
  EXPECT_EQ(parsed.config.path_timeout, std::chrono::milliseconds(50));
  EXPECT_EQ(parsed.file, "model");
}

TEST(Args, FlagBeatsEnvironmentBeatsDefault) {
  ::setenv("FAIRLEAD_TRANSPORT", "tcp", 1);
  EXPECT_EQ(parse({"x"}).config.transport, "tcp");
  EXPECT_EQ(parse({"x", "--transport", "verbs"}).config.transport, "verbs");
  ::setenv("FAIRLEAD_TRANSPORT", "pigeon", 1);
  const Parsed bad = parse({"x"});
  EXPECT_EQ(bad.exit, kUsage);
  EXPECT_THAT(bad.errors, AllOf(HasSubstr("FAIRLEAD_TRANSPORT"), HasSubstr("pigeon"), HasSubstr("legal: auto")));
  ::unsetenv("FAIRLEAD_TRANSPORT");
  EXPECT_EQ(parse({"x"}).config.transport, "auto");
}

TEST(Args, SwitchesHaveEnvironmentVariablesToo) {
  const auto once = [](const char* value, std::vector<const char*> words = {}) {
    if (value != nullptr) ::setenv("FAIRLEAD_ONLY_ONCE", value, 1);
    bool set = false;
    Args args("serve", "Serves.", "");
    args.flag("--only-once", &set, "Once");
    CaptureStderr();
    const std::optional<int> exit = args.parse(words);
    const std::string errors = GetCapturedStderr();
    ::unsetenv("FAIRLEAD_ONLY_ONCE");
    return exit ? errors : std::string(set ? "on" : "off");
  };
  for (const char* text : {"1", "true", "yes", "on"}) EXPECT_EQ(once(text), "on") << text;
  for (const char* text : {"0", "false", "no", "off"}) EXPECT_EQ(once(text), "off") << text;
  EXPECT_EQ(once("0", {"--only-once"}), "on");
  for (const char* word : {"--only-once=no", "--only-once=false", "--only-once=0"})
    EXPECT_EQ(once("1", {word}), "off") << word;
  EXPECT_EQ(once(nullptr, {"--only-once=no", "--only-once=yes"}), "on") << "the last counts";
  EXPECT_THAT(once(nullptr, {"--only-once=maybe"}), AllOf(HasSubstr("--only-once"), HasSubstr("legal: 1, true")));
  EXPECT_EQ(once(nullptr), "off");
  for (const char* text : {"maybe", "", "2"}) {
    EXPECT_THAT(once(text), AllOf(HasSubstr("FAIRLEAD_ONLY_ONCE"), HasSubstr("legal: 1, true"))) << text;
  }
}

TEST(Args, ASwitchByItselfHasNoVariable) {
  ::setenv("FAIRLEAD_JSON", "report.json", 1);  // another command's
  bool set = false;
  Args args("doctor", "Checks.", "");
  args.flag_by_itself("--json", &set, "As JSON");
  EXPECT_FALSE(args.parse({}));
  EXPECT_FALSE(set);
  const char* const words[] = {"--json"};
  EXPECT_FALSE(args.parse(words));
  EXPECT_TRUE(set);
  ::unsetenv("FAIRLEAD_JSON");
}

TEST(Args, AnOptionByItselfHasNoVariable) {
  ::setenv("FAIRLEAD_BANDWIDTH", "mlx5_0=12.5", 1);  // another command's
  std::uint64_t bandwidth = 0;
  Args args("bench trace", "Replays.", "");
  args.option_by_itself("--bandwidth", "B", "Bits a second", set_size(&bandwidth, 1, 1000));
  EXPECT_FALSE(args.parse({}));
  const char* const words[] = {"--bandwidth", "7"};
  EXPECT_FALSE(args.parse(words));
  EXPECT_EQ(bandwidth, 7U);
  ::unsetenv("FAIRLEAD_BANDWIDTH");
}

TEST(Args, AnEmptyNameOfAFileIsRefused) {
  for (const std::vector<const char*>& words : {std::vector<const char*>{"x", "--keys", ""}, {"x", "--keys="}}) {
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.exit, kUsage);
    EXPECT_THAT(parsed.errors, HasSubstr("--keys"));
  }
  EXPECT_THAT(parse({"x", "--keys", ""}).errors, HasSubstr("it is empty: name one, or leave it out"));
  ::setenv("FAIRLEAD_KEYS", "", 1);
  const Parsed parsed = parse({"x"});
  ::unsetenv("FAIRLEAD_KEYS");
  EXPECT_EQ(parsed.exit, kUsage);
  EXPECT_THAT(parsed.errors, AllOf(HasSubstr("FAIRLEAD_KEYS: it is empty"), HasSubstr("leave it out")));
}

TEST(Setters, AHostToReachHasAPort) {
  std::string text;
  EXPECT_TRUE(set_host_port(&text, false)("gpu7:0").ok());
  EXPECT_THAT(set_host_port(&text, true)("gpu7:0").message(), HasSubstr("1 to 65535"));
}

TEST(Args, UnknownFlagPointsToTheHelp) {
  const Parsed parsed = parse({"x", "--frobnicate"});
  EXPECT_EQ(parsed.exit, kUsage);
  EXPECT_THAT(parsed.errors, AllOf(HasSubstr("--frobnicate"), HasSubstr("--help")));
}

TEST(Args, AnUnknownFlagIsNamedWhateverStandsBehindIt) {
  const Parsed parsed = parse({"x", "--frobnicate", "1M"});
  EXPECT_EQ(parsed.exit, kUsage);
  EXPECT_THAT(parsed.errors, HasSubstr("there is no flag --frobnicate\n"));
  EXPECT_THAT(parse({"x", "y", "z"}).errors, HasSubstr("too many words: y z\n"));
}

TEST(Args, AnUnknownFlagGetsTheNearestOne) {
  EXPECT_THAT(parse({"x", "--transprot", "tcp"}).errors,
              HasSubstr("there is no flag --transprot; did you mean --transport?"));
  EXPECT_THAT(parse({"x", "--paket-io=udp"}).errors, HasSubstr("; did you mean --packet-io?"));
}

TEST(Args, FlagsOfOtherProgramsGetWhatDoesTheSameHere) {
  const std::pair<std::vector<const char*>, const char*> hints[] = {
      {{"x", "-d", "mlx5_0"}, "there is no flag -d; here that is --transport verbs:DEVICE\n"},
      {{"x", "--device=mlx5_0"}, "there is no flag --device; here that is --transport verbs:DEVICE\n"},
      {{"x", "-x", "3"},
       "there is no flag -x; here that is --gid-index for perftest's, --transport for ucx_perftest's\n"},
      {{"x", "-x3"}, "there is no flag -x3; here that is --gid-index"},
      {{"x", "-m", "4096"}, "there is no flag -m; here that is --mtu\n"},
      {{"-p", "7471"}, "there is no flag -p\n"},  // this command has no port
      {{"-n"}, "there is no flag -n\n"},          // and counts nothing
      {{"x", "-Z", "1"}, "there is no flag -Z\n"},
  };
  for (const auto& [words, hint] : hints) {
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.exit, kUsage);
    EXPECT_THAT(parsed.errors, HasSubstr(hint));
  }
  EXPECT_EQ(parse({"--", "-d"}).file, "-d") << "behind -- it is a word like others";
}

TEST(Args, SettingsOfVerbsAreRefusedWithTcp) {
  for (const char* flag : {"--mtu=1024", "--gid-index=1", "--packet-io=udp", "--profile=full", "--retry-count=3"}) {
    const Parsed parsed = parse({"x", "--transport", "tcp", flag});
    EXPECT_EQ(parsed.exit, kUsage) << flag;
    EXPECT_THAT(parsed.errors, HasSubstr("is a setting of verbs, and --transport is tcp")) << flag;
    EXPECT_FALSE(parse({"x", "--transport", "auto", flag}).exit) << flag;
  }
  const std::pair<std::vector<const char*>, const char*> without[] = {
      {{"--transport", "tcp,shm"}, "--transport is tcp,shm"},
      {{"--forbid", "shm,verbs"}, "--forbid is shm,verbs"},
      {{"--forbid", "hardware,software"}, "--forbid is hardware,software"},
      {{"--require", "tcp"}, "--require is tcp"},
  };
  for (const auto& [words, why] : without) {
    std::vector<const char*> all{"x", "--mtu=1024"};
    all.insert(all.end(), words.begin(), words.end());
    const Parsed parsed = parse(all);
    EXPECT_EQ(parsed.exit, kUsage) << why;
    EXPECT_THAT(parsed.errors, HasSubstr(why));
  }
  for (const char* flag :
       {"--transport=tcp,verbs:soft0", "--forbid=hardware", "--forbid=verbs:mlx5_0", "--require=tcp,software"}) {
    EXPECT_FALSE(parse({"x", "--mtu=1024", flag}).exit) << flag;
  }
  ::setenv("FAIRLEAD_MTU", "1024", 1);  // the environment holds for many commands
  EXPECT_FALSE(parse({"x", "--transport", "tcp"}).exit);
  ::unsetenv("FAIRLEAD_MTU");
}

TEST(Args, RulesSeeWhatStoodOnTheCommandLine) {
  const auto depth = [](std::vector<const char*> words) {
    std::uint64_t value = 0;
    Args args("bench", "Measures.", "");
    args.option("--depth", "N", "Depth", set_number(&value, 1, 9));
    args.rule([&] { return args.given("--depth") ? std::string("no depth here") : std::string(); });
    CaptureStderr();
    const std::optional<int> exit = args.parse(words);
    const std::string errors = GetCapturedStderr();
    return exit ? errors : "ok";
  };
  EXPECT_EQ(depth({}), "ok");
  EXPECT_THAT(depth({"--depth", "3"}), HasSubstr("bench: no depth here"));
}

TEST(Args, BadValuesNameTheLegalOnes) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"x", "--transport", "udp"}, "legal: auto, verbs, verbs:DEVICE, shm, tcp"},
      {{"x", "--soft-profile", "half"}, "legal: full, pvrdma"},
      {{"x", "--mtu", "1500"}, "legal: 0, 256, 512, 1024, 2048, 4096"},
      {{"x", "--retry-count", "8"}, "legal: a whole number from 0 to 7"},
      {{"x", "--retry-count", "two"}, "legal: a whole number from 0 to 7"},
      {{"x", "--tcp-port", "65536"}, "from 0 to 65535"},
      {{"x", "--mtu"}, "--mtu: BYTES is missing: Path MTU: 256, 512"},
      {{}, "FILE"},
      {{"x", "y"}, "y"},
  };
  for (const auto& [words, expected] : cases) {
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.exit, kUsage);
    EXPECT_THAT(parsed.errors, HasSubstr(expected));
  }
}

TEST(Args, HelpHasExamplesDefaultsAndEnvironment) {
  CaptureStdout();
  const Parsed parsed = parse({"--help"});
  const std::string help = GetCapturedStdout();
  EXPECT_EQ(parsed.exit, kSuccess);
  EXPECT_THAT(help, AllOf(HasSubstr("fairlead push x"), HasSubstr("default auto"), HasSubstr("FAIRLEAD_PACKET_IO")));
}

TEST(Setters, SecondsAndSizes) {
  double seconds = 0;
  EXPECT_TRUE(set_seconds(&seconds, 0.1, 60)("2.5").ok());
  EXPECT_EQ(seconds, 2.5);
  for (const char* text : {"0", "61", "nan", "inf", "", "1s"})
    EXPECT_FALSE(set_seconds(&seconds, 0.1, 60)(text).ok()) << text;
  std::uint64_t size = 0;
  EXPECT_TRUE(set_size(&size, 1, 1 << 20)("64K").ok());
  EXPECT_EQ(size, 65536U);
  EXPECT_THAT(set_size(&size, 1, 1 << 20)("2M").message(), HasSubstr("from 1 to 1M"));
}

}  // namespace
}  // namespace fairlead::cli
