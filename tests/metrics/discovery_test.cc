// How Prometheus finds the processes of a host: ports of a range, and files that say which.
#include "metrics/discovery.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "metrics/port_range.h"
#include "metrics/process_metrics.h"
#include "metrics/server.h"
#include "tests/golden.h"

namespace fairlead::metrics {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(PortRange, IsAPortOrSeveral) {
  const auto range = [](std::string_view text) {
    const Result<PortRange> read = parse_port_range(text);
    return read ? fmt::format("{}|{}|{}", read->host, read->first, read->last) : read.error().message();
  };
  EXPECT_EQ(range(":9471"), "|9471|9471");
  EXPECT_EQ(range("127.0.0.1:9471-9490"), "127.0.0.1|9471|9490");
  EXPECT_EQ(range("[::1]:1-65535"), "::1|1|65535");
  EXPECT_EQ(range("node-7:80"), "node-7|80|80") << "a dash of the host's name";
  EXPECT_EQ(range("node-7:80-81"), "node-7|80|81");
  for (const char* wrong : {":0-5", ":5-4", ":5-", ":-5", ":5-65536", ":5-6-7", ":5-x", "9471-9490", ""}) {
    EXPECT_FALSE(parse_port_range(wrong)) << wrong;
  }
  EXPECT_THAT(range(":9490-9471"), HasSubstr("':9490-9471' is no range of ports (legal: HOST:FIRST-LAST"));
}

TEST(PortRange, TheFirstThatIsFreeIsTaken) {
  const auto none = [] { return std::vector<Metric>(); };
  const auto first = MetricsServer::start("127.0.0.1:0", none);
  ASSERT_TRUE(first);
  const std::string taken = (*first)->address().substr((*first)->address().rfind(':') + 1);
  const std::string range = fmt::format("127.0.0.1:{}-{}", taken, std::min(65535, std::stoi(taken) + 40));
  const auto second = MetricsServer::start(range, none);
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_NE((*second)->address(), (*first)->address());
  const auto third = MetricsServer::start(fmt::format("127.0.0.1:{0}-{0}", taken), none);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message(), HasSubstr("in use"));
}

class DiscoveryTest : public testing::Test {
 protected:
  DiscoveryTest() : folder_(fs::temp_directory_path() / fmt::format("fairlead-found-{}", ::getpid())) {
    fs::remove_all(folder_);
  }
  ~DiscoveryTest() override { fs::remove_all(folder_); }
  std::size_t files() { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  fs::path folder_;
};

TEST_F(DiscoveryTest, AFileSaysWhereAndGoesWithItsProcess) {
  {
    const auto one = Discovery::announce(folder_, "[::]:9471", "serve");
    ASSERT_TRUE(one) << one.error().to_string();
    EXPECT_EQ(
        file_text(one->path()),
        fmt::format(
            "[{{\"targets\": [\"127.0.0.1:9471\"], \"labels\": {{\"service\": \"serve\", \"process\": \"{}\"}}}}]\n",
            ::getpid()));
    struct stat info{};
    ASSERT_EQ(::stat(one->path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0644U) << "Prometheus is another user";
    const auto two = Discovery::announce(folder_, "10.0.0.7:9472", "serve-gpu");
    ASSERT_TRUE(two);
    EXPECT_THAT(file_text(two->path()), HasSubstr("10.0.0.7:9472"));
    EXPECT_EQ(files(), 2U) << "the first lives";
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(DiscoveryTest, WhatItsProcessLeftIsRemovedAndNothingElse) {
  fs::create_directory(folder_);
  const auto write = [this](const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; };
  const std::string ours = R"([{"targets": ["127.0.0.1:1"], "labels": {"service": "serve", "process": "7"}}])";
  write("fairlead-aB3dE6.json", ours);
  write("fairlead-prod.json", ours);
  write("fairlead-prod01.json", R"([{"targets": ["10.0.0.7:9471"], "labels": {"job": "fairlead"}}])");
  const auto one = Discovery::announce(folder_, "127.0.0.1:1", "serve");
  ASSERT_TRUE(one);
  EXPECT_FALSE(fs::exists(folder_ / "fairlead-aB3dE6.json"));
  EXPECT_TRUE(fs::exists(folder_ / "fairlead-prod.json"));
  EXPECT_TRUE(fs::exists(folder_ / "fairlead-prod01.json"));
}

TEST_F(DiscoveryTest, AnyNameIsJson) {
  const auto one = Discovery::announce(folder_, "127.0.0.1:1", "train \"A\" \\ \n");
  ASSERT_TRUE(one);
  EXPECT_THAT(file_text(one->path()), HasSubstr(R"("service": "train \"A\" \\ \u000a")"));
}

TEST_F(DiscoveryTest, AFolderThatItMakesIsReadByAllWhateverTheUmask) {
  const mode_t before = ::umask(0077);
  const auto one = Discovery::announce(folder_, "127.0.0.1:1", "serve");
  ::umask(before);
  ASSERT_TRUE(one) << one.error().to_string();
  struct stat info{};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0755U);
}

TEST_F(DiscoveryTest, WhatNobodyHoldsIsTakenAwayAndNothingElse) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "fairlead-killed.json")
      << R"([{"targets": ["127.0.0.1:1"], "labels": {"service": "serve", "process": "7"}}])";
  std::ofstream(folder_ / "others.json") << "[]";
  std::ofstream(folder_ / "fairlead-notes.txt") << "";
  fs::create_symlink("others.json", folder_ / "fairlead-link.json");
  const auto one = Discovery::announce(folder_, "127.0.0.1:1", "serve");
  ASSERT_TRUE(one);
  EXPECT_FALSE(fs::exists(folder_ / "fairlead-killed.json"));
  EXPECT_TRUE(fs::exists(folder_ / "others.json"));
  EXPECT_EQ(files(), 4U);
}

TEST_F(DiscoveryTest, AFolderThatCannotBeHad) {
  std::ofstream(folder_.string()) << "";
  EXPECT_THAT(Discovery::announce(folder_, "127.0.0.1:1", "serve").error().message(), HasSubstr(folder_.string()));
  EXPECT_FALSE(Discovery::announce("/proc/nowhere", "127.0.0.1:1", "serve"));
}

TEST(ProcessMetrics, AreThoseOfThisProcess) {
  const auto value = [](const std::string& name) {
    for (const Metric& metric : process_metrics()) {
      if (metric.name == name) return metric.samples.at(0).value;
    }
    return -1.0;
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_threads"), 1);
  EXPECT_GT(value("process_open_fds"), 2);
  EXPECT_GT(value("process_max_fds"), value("process_open_fds"));
  EXPECT_GE(value("process_cpu_seconds_total"), 0);
  EXPECT_GT(value("process_start_time_seconds"), 1.6e9);
  EXPECT_GE(value("fairlead_process_locked_bytes"), 0);
  EXPECT_TRUE(process_metrics(SystemFiles("/nowhere")).size() <= 1) << "what cannot be read is left out";
}

}  // namespace
}  // namespace fairlead::metrics
