#include "metrics/server.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/config.h"
#include "metrics/duration_histogram.h"
#include "metrics/engine_metrics.h"
#include "tests/metrics/http.h"
#include "tests/no_threads.h"

namespace fairlead::metrics {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

  // Who is slow, or says nothing at all, holds up nobody.
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 2; ++i) {
    slow.push_back(connect_to((*server)->address()));
    EXPECT_TRUE(say(slow.back(), "GET /heal"));
  }
  EXPECT_THAT(get((*server)->address(), "/healthz"), HasSubstr("200 OK"));
  for (int i = 0; i < 200; ++i) slow.push_back(connect_to((*server)->address()));
  EXPECT_THAT(get((*server)->address(), "/healthz"), HasSubstr("200 OK"));

  const auto second = MetricsServer::start((*server)->address(), [] { return std::vector<Metric>(); });
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(), AllOf(HasSubstr((*server)->address()), HasSubstr("another port")));
}

TEST(MetricsServer, SaysThatThereIsNoThread) {
  const test::NoThreads none;
  const auto server = MetricsServer::start("127.0.0.1:0", [] { return std::vector<Metric>(); });
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(server.error().message(), AllOf(HasSubstr("no thread for metrics"), HasSubstr("ulimit -u")));
}

TEST(MetricsServer, SaysWhatThePoolHolds) {
  EngineStats stats;
  stats.pool = {
      .blocks = 4, .cached_bytes = 65536, .given_back = 2, .given_back_bytes = 8192, .arenas = {}, .pages = {}};
  stats.pool.arenas = {{"ordinary", 1, 4096}, {"2M", 3, 100}};
  const auto server = MetricsServer::start("127.0.0.1:0", [&stats] { return engine_metrics(stats); });
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(get((*server)->address(), "/metrics"),
              AllOf(HasSubstr("\nfairlead_pool_blocks 4\n"), HasSubstr("\nfairlead_pool_cached_bytes 65536\n"),
                    HasSubstr("\nfairlead_pool_arenas_given_back_total 2\n"),
                    HasSubstr("\nfairlead_pool_given_back_bytes_total 8192\n"),
                    HasSubstr("\nfairlead_pool_arenas{pages=\"ordinary\"} 1\n"),
                    HasSubstr("\nfairlead_pool_arenas{pages=\"2M\"} 3\n"),
                    HasSubstr("\nfairlead_pool_arena_bytes{pages=\"2M\"} 100\n"),
                    HasSubstr("# TYPE fairlead_pool_arenas_given_back_total counter")));
}

TEST(MetricsServer, SaysWhatTheRegistrationCacheDid) {
  EngineStats stats;
  stats.cache = {.hits = 11, .misses = 12, .evicted = 13, .invalidated = 14, .registrations = 15, .bytes = 16};
  const auto server = MetricsServer::start("127.0.0.1:0", [&stats] { return engine_metrics(stats); });
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(
      get((*server)->address(), "/metrics"),
      AllOf(HasSubstr("\nfairlead_cache_hits_total 11\n"), HasSubstr("\nfairlead_cache_misses_total 12\n"),
            HasSubstr("\nfairlead_cache_evicted_total 13\n"), HasSubstr("\nfairlead_cache_invalidated_total 14\n"),
            HasSubstr("\nfairlead_cache_registrations 15\n"), HasSubstr("\nfairlead_cache_bytes 16\n"),
            HasSubstr("# TYPE fairlead_cache_hits_total counter"), HasSubstr("# TYPE fairlead_cache_bytes gauge")));
}

TEST(MetricsServer, SaysWhatEachTransportCarriedAndHowLongThingsTook) {
  EngineStats stats;
  stats.transports = {{.transport = "verbs:soft0", .bytes_sent = 7, .requests_in_flight = 2, .paths = 1},
                      {.transport = "tcp", .bytes_received = 9, .paths_lost = 3, .retransmissions = 5},
                      {.transport = "shm", .copied = CopiedBytes{.streamed = 7, .by_kernel = 8}}};
  DurationHistogram took;
  for (const double seconds : {0.001, 0.005, 0.3, 1000.0}) took.observe(seconds);
  const auto server = MetricsServer::start("127.0.0.1:0", [&] {
    std::vector<Metric> metrics = engine_metrics(stats);
    metrics.push_back({"fairlead_test_seconds", "How long.", Kind::kHistogram, {{0, {}, took.read()}}});
    return metrics;
  });
  ASSERT_TRUE(server) << server.error().to_string();
  const std::string text = get((*server)->address(), "/metrics");
  EXPECT_THAT(text, AllOf(HasSubstr("fairlead_transport_sent_bytes_total{lane=\"0\",transport=\"verbs:soft0\"} 7\n"),
                          HasSubstr("fairlead_transport_requests_in_flight{lane=\"0\",transport=\"verbs:soft0\"} 2\n"),
                          HasSubstr("fairlead_transport_paths{lane=\"0\",transport=\"verbs:soft0\"} 1\n"),
                          HasSubstr("fairlead_transport_received_bytes_total{lane=\"0\",transport=\"tcp\"} 9\n"),
                          HasSubstr("fairlead_transport_paths_lost_total{lane=\"0\",transport=\"tcp\"} 3\n"),
                          HasSubstr("fairlead_transport_retransmissions_total{lane=\"0\",transport=\"tcp\"} 5\n"),
                          HasSubstr("fairlead_shm_copied_bytes_total{lane=\"0\",way=\"kernel\"} 8\n"),
                          HasSubstr("fairlead_shm_copied_bytes_total{lane=\"0\",way=\"streamed\"} 7\n"),
                          testing::Not(HasSubstr("retransmissions_total{lane=\"0\",transport=\"verbs"))));
  EXPECT_THAT(text,
              AllOf(HasSubstr("# TYPE fairlead_test_seconds histogram"),
                    HasSubstr("fairlead_test_seconds_bucket{le=\"0.005\"} 2\n"),
                    HasSubstr("fairlead_test_seconds_bucket{le=\"0.25\"} 2\n"),
                    HasSubstr("fairlead_test_seconds_bucket{le=\"0.5\"} 3\n"),
                    HasSubstr("fairlead_test_seconds_bucket{le=\"300\"} 3\n"),
                    HasSubstr("fairlead_test_seconds_bucket{le=\"+Inf\"} 4\n"),
                    HasSubstr("fairlead_test_seconds_count 4\n"), HasSubstr("fairlead_test_seconds_sum 1000.306")));
}

TEST(MetricsServer, SaysWhereLanesAndPoolAre) {
  PlacementReport placement;
  placement.lanes = {{.pinned = true, .cpus = {8}}, {.pinned = false, .cpus = {0, 1}}};
  placement.pool_node = 1;
  placement.pool_pages = {0, 300};
  placement.shares = {{.transport = "verbs:mlx5_0", .bytes_per_second = 5e10}};
  const auto server = MetricsServer::start("127.0.0.1:0", [&] { return placement_metrics(placement); });
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(get((*server)->address(), "/metrics"),
              AllOf(HasSubstr("fairlead_lane_cpu{lane=\"0\"} 8\n"), HasSubstr("fairlead_lane_cpu{lane=\"1\"} -1\n"),
                    HasSubstr("fairlead_pool_node 1\n"), HasSubstr("fairlead_pool_sampled_pages{node=\"1\"} 300\n"),
                    HasSubstr("fairlead_transport_planned_bytes_per_second{transport=\"verbs:mlx5_0\"} 5")));
  placement = {};
  EXPECT_THAT(get((*server)->address(), "/metrics"), HasSubstr("fairlead_pool_node -1\n"));
}

TEST(MetricsServer, ListensOnAllAddressesOfBothFamilies) {
  const auto server = MetricsServer::start(":0", [] { return std::vector<Metric>(); });
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(get((*server)->address(), "/healthz", "127.0.0.1"), HasSubstr("200 OK"));
  if (!UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0))) GTEST_SKIP() << "this host has no IPv6";
  EXPECT_THAT((*server)->address(), testing::StartsWith("[::]:"));
  EXPECT_THAT(get((*server)->address(), "/healthz", "::1"), HasSubstr("200 OK"));
}

TEST(MetricsServer, SaysWhatItDoesNotTake) {
  const auto server = MetricsServer::start("127.0.0.1:0", [] { return std::vector<Metric>(); });
  ASSERT_TRUE(server) << server.error().to_string();
  for (const auto& [request, status] : {std::pair<std::string, std::string>{"POST /metrics HTTP/1.1\r\n\r\n", " 405 "},
                                        {"\r\n\r\n", " 405 "},
                                        {"GET\r\n\r\n", " 404 "}}) {
    const UniqueFd fd = connect_to((*server)->address());
    static_cast<void>(say(fd, request));
    char buffer[256];
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(got, 0) << request;
    EXPECT_THAT(std::string(buffer, static_cast<std::size_t>(got)), HasSubstr(status));
  }
}

TEST(MetricsServer, HasPagesOfWhoeverStartsIt) {
  std::atomic<bool> ready{false};
  const auto server = MetricsServer::start(
      "127.0.0.1:0", [] { return std::vector<Metric>(); },
      {{"/readyz", [&ready]() -> PageText { return {.ok = ready, .body = ready ? "ready\n" : "starting\n"}; }},
       {"/status", []() -> PageText { return {.body = "{}", .type = "application/json"}; }}});
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(get((*server)->address(), "/readyz"), AllOf(HasSubstr("503"), HasSubstr("\r\n\r\nstarting\n")));
  ready = true;
  EXPECT_THAT(get((*server)->address(), "/readyz"), AllOf(HasSubstr("200 OK"), HasSubstr("\r\n\r\nready\n")));
  EXPECT_THAT(get((*server)->address(), "/status?x"), AllOf(HasSubstr("application/json"), HasSubstr("{}")));
  EXPECT_THAT(get((*server)->address(), "/nonsense"),
              AllOf(HasSubstr("404"), HasSubstr("there are /metrics, /healthz, /readyz, /status")));
}

// Two scrapers at once get all of it while a third asks and never reads, which is hung up on in time.
TEST(MetricsServer, AnswersScrapesThatMeetAndHangsUpOnWhoNeverReads) {
  const std::string large(std::size_t{16} << 20, 'x');  // more than sockets hold
  auto server =
      MetricsServer::start("127.0.0.1:0", [] { return std::vector<Metric>{build_metric("0.1.0", "abc", "Dev")}; },
                           {{"/large", [&large] { return PageText{.body = large}; }}});
  ASSERT_TRUE(server) << server.error().to_string();
  const std::string& address = (*server)->address();
  const UniqueFd never = connect_to(address);
  const auto asked = std::chrono::steady_clock::now();
  ASSERT_TRUE(say(never, "GET /large HTTP/1.1\r\n\r\n"));
  std::vector<std::thread> scrapers;
  std::atomic<int> whole = 0;
  for (int i = 0; i < 2; ++i) {
    scrapers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        whole += get(address, "/metrics").find("fairlead_build_info") != std::string::npos ? 1 : 0;
      }
      whole += get(address, "/large").size() > large.size() ? 1 : 0;
    });
  }
  for (std::thread& scraper : scrapers) scraper.join();
  EXPECT_EQ(whole, 42);
  std::this_thread::sleep_until(asked + std::chrono::seconds(6));
  EXPECT_THAT(get(address, "/healthz"), HasSubstr("200 OK"));
  std::size_t got = 0;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (ssize_t n; (n = ::recv(never.get(), buffer.data(), buffer.size(), 0)) > 0;) got += static_cast<std::size_t>(n);
  EXPECT_LT(got, large.size());
}

TEST(MetricsServer, HangsUpOnWhatIsNoHttp) {
  const auto server = MetricsServer::start("127.0.0.1:0", [] { return std::vector<Metric>(); });
  ASSERT_TRUE(server) << server.error().to_string();
  const UniqueFd fd = connect_to((*server)->address());
  ASSERT_TRUE(say(fd, std::string("FAIRLEAD\x12\0\0\0", 12)));
  const timeval less_than_its_patience{4, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &less_than_its_patience, sizeof less_than_its_patience);
  char byte = 0;
  EXPECT_EQ(::recv(fd.get(), &byte, 1, 0), 0);
}

TEST(MetricsServer, SaysWhyPathsDiedAndHandshakesFailed) {
  Tally counts;
  counts.path_deaths.add(Code::kPeerDied);
  counts.failovers.add(Code::kPeerDied);
  counts.recoveries.add(Code::kUnavailable);
  counts.recoveries.add(Code::kUnavailable);
  counts.handshakes_refused.add(Code::kPermissionDenied);
  counts.credit_waits = 7;
  const auto server = MetricsServer::start("127.0.0.1:0", [&] { return reason_metrics(counts); });
  ASSERT_TRUE(server) << server.error().to_string();
  EXPECT_THAT(get((*server)->address(), "/metrics"),
              AllOf(HasSubstr("fairlead_path_deaths_total{cause=\"peer_died\"} 1\n"),
                    HasSubstr("fairlead_path_changes_total{cause=\"peer_died\",over=\"another\"} 1\n"),
                    HasSubstr("fairlead_path_changes_total{cause=\"unavailable\",over=\"same\"} 2\n"),
                    HasSubstr("fairlead_refused_handshakes_total{cause=\"permission_denied\"} 1\n"),
                    HasSubstr("fairlead_credit_waits_total 7\n")));
}

TEST(MetricsServer, RefusesABadAddress) {
  EXPECT_FALSE(MetricsServer::start("nonsense", [] { return std::vector<Metric>(); }));
  EXPECT_FALSE(MetricsServer::start("127.0.0.1:99999", [] { return std::vector<Metric>(); }));
}

}  // namespace
}  // namespace fairlead::metrics
