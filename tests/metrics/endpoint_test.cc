// The public API's: one call in any process.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/config.h"
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

/// 0, or why not.
int connect_to(const std::string& address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(parse_host_port(address)->port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ? 0 : errno;
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

// Its end is none of the parent's endpoint, nor does a child that lives on keep the port.
TEST(Metrics, AreNotThoseOfAForkedChild) {
  Engine one = engine();
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("of-parent-" + std::to_string(::getpid()));
  auto served = Metrics::serve(one, {.listen = "127.0.0.1:0", .discovery = folder.string()});
  ASSERT_TRUE(served) << served.error().to_string();
  const std::string address = served->address();
  int lives[2], said[2];
  ASSERT_EQ(::pipe(lives), 0);
  ASSERT_EQ(::pipe(said), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    {
      const Metrics ends = *std::move(served);
    }
    char none = 0;
    ::close(lives[1]);
    ::_exit(::write(said[1], &none, 1) == 1 && ::read(lives[0], &none, 1) == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  ::close(lives[0]);
  char word = 0;
  ASSERT_EQ(::read(said[0], &word, 1), 1);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(metrics::get(address, "/healthz"), HasSubstr("200 OK"));
  EXPECT_FALSE(std::filesystem::is_empty(folder));
  {
    const Metrics ends = *std::move(served);
  }
  EXPECT_EQ(connect_to(address), ECONNREFUSED) << "the child holds the port";
  ::close(lives[1]);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int fd : {said[0], said[1]}) ::close(fd);
  std::filesystem::remove_all(folder);
}

TEST(Metrics, SayWhatWaits) {
  constexpr std::size_t kWindow = 4, kPosted = 7;
  EngineConfig config;
  config.transport = "tcp";
  config.listen = "127.0.0.1:0";
  config.max_pending_events = kWindow;
  auto there = Engine::create(config);
  ASSERT_TRUE(there) << there.error().to_string();
  Engine here = engine();
  auto peer = here.connect(there->listen_address());
  ASSERT_TRUE(peer->wait_ready().ok());
  auto guest = there->accept(std::chrono::seconds(60));
  ASSERT_TRUE(guest);
  const auto become = [](Engine& engine, std::uint64_t transfers, std::uint64_t events, std::uint64_t awaiting) {
    const auto is_so = [&] {
      const PeerStats now = engine.stats().total;
      return now.transfers_under_way == transfers && now.events_untaken == events && now.awaiting_credit == awaiting;
    };
    for (int i = 0; i < 6000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string text = metrics_text(engine);
    EXPECT_THAT(text, HasSubstr("\nfairlead_transfers_under_way " + std::to_string(transfers) + "\n"));
    EXPECT_THAT(text, HasSubstr("\nfairlead_events_untaken " + std::to_string(events) + "\n"));
    EXPECT_THAT(text, HasSubstr("\nfairlead_sessions_awaiting_credit " + std::to_string(awaiting) + "\n"));
  };
  while (guest->next_event().kind != Event::Kind::kNone) {
  }
  while (peer->next_event().kind != Event::Kind::kNone) {
  }
  become(*there, 0, 0, 0);
  std::vector<Transfer> posted;
  const std::vector<std::byte> word(8);
  for (std::size_t i = 0; i < kPosted; ++i) posted.push_back(peer->send(word));
  become(*there, 0, kWindow, 0);
  become(here, kPosted - kWindow, 0, 1);
  for (std::size_t i = kWindow; i < kPosted; ++i) posted[i].cancel();
  become(here, 0, 0, 0);  // nothing waits any more, though the peer has taken nothing
  for (std::size_t i = 0; i < kWindow; ++i) EXPECT_EQ(guest->next_event().kind, Event::Kind::kMessage);
  become(*there, 0, 0, 0);
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
