#include "metrics/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "datapath/base/unique_fd.h"
#include "fairlead/config.h"
#include "metrics/engine_metrics.h"

namespace fairlead::metrics {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The whole answer to one HTTP/1.0 request.
std::string get(const std::string& address, const std::string& path) {
  const Result<HostPort> where = parse_host_port(address);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(where->port);
  ::inet_pton(AF_INET, where->host.c_str(), &to.sin_addr);
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return "no connection";
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: test\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) return "";
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<std::size_t>(got));
  return answer;
}

// One test, one server: it takes two seconds to stop.
TEST(MetricsServer, ServesMetricsAndHealthAndTellsOfAPortInUse) {
  EngineStats stats;
  stats.total.bytes_written = 12'345;
  stats.total.transfers_failed = 3;
  stats.pool_bytes = std::uint64_t{64} << 20;
  auto server = MetricsServer::start("127.0.0.1:0", [&stats] {
    volatile char large[1 << 20];  // a source may need more stack than the web server's threads have
    for (std::size_t i = 0; i < sizeof large; i += 4096) large[i] = 1;
    std::vector<Metric> metrics = engine_metrics(stats);
    metrics.push_back(build_metric("0.1.0", "abc", "Dev\"\n"));
    return metrics;
  });
  ASSERT_TRUE(server) << server.error().to_string();
  ASSERT_THAT((*server)->address(), testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT((*server)->address(), testing::Not(testing::EndsWith(":0")));

  EXPECT_THAT(
      get((*server)->address(), "/metrics"),
      AllOf(HasSubstr("200 OK"), HasSubstr("# TYPE fairlead_transfer_bytes_total counter"),
            HasSubstr("fairlead_transfer_bytes_total{op=\"write\"} 12345"),
            HasSubstr("fairlead_transfers_total{result=\"failed\"} 3"), HasSubstr("# TYPE fairlead_pool_bytes gauge"),
            HasSubstr("fairlead_pool_bytes 67108864"), HasSubstr("build_type=\"Dev\\\"\\n\"")));
  EXPECT_THAT(get((*server)->address(), "/healthz"), AllOf(HasSubstr("200 OK"), HasSubstr("\r\n\r\nok\n")));
  EXPECT_THAT(get((*server)->address(), "/nonsense"), HasSubstr("404"));
  EXPECT_THAT(get((*server)->address(), "/healthz"), HasSubstr("200 OK"));

  const auto second = MetricsServer::start((*server)->address(), [] { return std::vector<Metric>(); });
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), AllOf(HasSubstr((*server)->address()), HasSubstr("another port")));
}

TEST(MetricsServer, RefusesABadAddress) {
  EXPECT_FALSE(MetricsServer::start("nonsense", [] { return std::vector<Metric>(); }));
  EXPECT_FALSE(MetricsServer::start("127.0.0.1:99999", [] { return std::vector<Metric>(); }));
}

}  // namespace
}  // namespace fairlead::metrics
