// The public API's: one call in any process.
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fairlead/engine.h"
#include "fairlead/metrics.h"
#include "tests/metrics/http.h"

namespace fairlead {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

Engine engine() {
  EngineConfig config;
  config.transport = "tcp";
  config.listen = "127.0.0.1:0";
  auto made = Engine::create(config);
  EXPECT_TRUE(made) << made.error().to_string();
  return *std::move(made);
}

TEST(Metrics, OfAnEngineAreServedByOneCall) {
  Engine there = engine(), here = engine();
  auto served = Metrics::serve(there, {.listen = "127.0.0.1:0"});
  ASSERT_TRUE(served) << served.error().to_string();
  auto peer = here.connect(there.listen_address());
  ASSERT_TRUE(peer->wait_ready().ok());
  ASSERT_TRUE(there.accept(std::chrono::seconds(60)));
  const std::string page = metrics::get(served->address(), "/metrics");
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("200 OK"), HasSubstr("\nfairlead_sessions{transport=\"tcp\",state=\"ready\"} 1\n"),
            HasSubstr("\nfairlead_credit_waits_total 0\n"), HasSubstr("\nprocess_threads "),
            ContainsRegex("\nfairlead_build_info\\{version=\"0\\.[^\"]+\",commit=\"[^\"]+\",build_type=\"[^\"]+\"")));
  EXPECT_THAT(metrics::get(served->address(), "/healthz"), HasSubstr("200 OK"));
  EXPECT_THAT(metrics_text(there), HasSubstr("\nfairlead_sessions_total 1\n"));

  Metrics moved = *std::move(served);
  there.shutdown();
  EXPECT_THAT(metrics::get(moved.address(), "/metrics"), HasSubstr("200 OK"));
}

TEST(Metrics, OfSeveralProcessesOfAHostTakePortsInTurnAndAreFound) {
  Engine one = engine();
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("found-" + std::to_string(::getpid()));
  {
    const auto first =
        Metrics::serve(one, {.listen = "127.0.0.1:0", .discovery = folder.string(), .service = "trainer"});
    ASSERT_TRUE(first) << first.error().to_string();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    const std::string port = first->address().substr(first->address().rfind(':') + 1);
    const auto taken = Metrics::serve(one, {.listen = "127.0.0.1:" + port});
    ASSERT_FALSE(taken);
    EXPECT_THAT(taken.error().message(), HasSubstr(port));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the file goes with what it tells of";
  std::filesystem::remove_all(folder);
  for (const char* wrong : {"", "nowhere", "127.0.0.1:70000", "127.0.0.1:9-1"}) {
    EXPECT_EQ(Metrics::serve(one, {.listen = wrong}).status().code(), Code::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace fairlead
