// fork() with engines open: the child's copies are inert and say so, the parent's sessions do not notice, and a child
// that lives on hides nothing of its parent's end.
#include <dirent.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "base/unique_fd.h"
#include "tests/conformance/engine_pair.h"

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;  // it ends a child that starts threads of its own
#else
constexpr bool kThreadSanitizer = false;
#endif

namespace fairlead {
namespace {

/// Runs `body` in a child, which ends without destructors: only what body() does happens there.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(50);  // a child that hangs fails the test instead of stopping it
    ::_exit(body());
  }
  ~Child() {
    if (pid_ > 0) end(SIGKILL);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Its exit code; -N if signal N ended it.
  int wait() { return end(0); }
  int end(int signal) {
    int status = 0;
    if (signal != 0) ::kill(pid_, signal);
    EXPECT_EQ(::waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

/// Counts what does not hold; gtest's own assertions of a child reach nobody.
struct Checks {
  int failed = 0;
  void holds(bool fine, const char* what) {
    if (!fine) std::fprintf(stderr, "in the child: %s does not hold\n", what);
    failed += fine ? 0 : 1;
  }
  void says_so(const Status& end, const char* what) {
    holds(end.code() == Code::kUnavailable && end.message().find("forked") != std::string::npos, what);
  }
};
#define HOLDS(condition) checks.holds(condition, #condition)
#define SAYS_SO(status) checks.says_so(status, #status)

std::vector<Way> fork_ways() {
  if (test::over_memif()) return {{"soft", "verbs:soft0"}};
  // What the system's library opens stays open in a child.
  if (std::getenv("FAIRLEAD_CONFORMANCE_DEVICE") != nullptr) return {{"tcp", "tcp"}};
  return {{"tcp", "tcp"}, {"soft", "verbs:soft0"}};
}

class EngineFork : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void begin() {
    EngineConfig server = config_for(GetParam());
    server.transport = "auto";
    start(server, config_for(GetParam()));
    std::tie(memory_, remote_) = target("region", 65536);
    source_ = buffer(*client, 65536, 3);
  }

  /// The session is as it was, over the path that it had.
  void expect_untouched() {
    std::memset(source_.data(), ++fill_, source_.size());
    Transfer written = peer.write(source_, remote_, {.notify = fill_});
    EXPECT_TRUE(written.wait(kPatience).ok()) << written.status().to_string();
    EXPECT_EQ(next_of(server_peer, Event::Kind::kNotification).value, fill_);
    EXPECT_EQ(std::memcmp(memory_.data(), source_.data(), source_.size()), 0);
    EXPECT_EQ(peer.state(), PeerState::kReady);
    EXPECT_EQ(peer.transport(), GetParam().transport);
    for (Event event = peer.next_event(); event.kind != Event::Kind::kNone; event = peer.next_event()) {
      EXPECT_NE(event.kind, Event::Kind::kPathChanged) << event.text;
    }
  }

  Memory memory_, source_;
  RemoteMemory remote_;
  std::uint8_t fill_ = 0;
};

TEST_P(EngineFork, AChildThatDestroysItsEnginesLeavesTheParentsSession) {
  begin();
  for (int round = 0; round < 3; ++round) {
    Transfer under_way = peer.write(source_, remote_);
    Child child([&] {
      peer = Peer();
      server_peer = Peer();
      under_way = Transfer();
      source_ = memory_ = Memory();
      client.reset();
      server.reset();
      return 0;
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_TRUE(under_way.wait(kPatience).ok()) << under_way.status().to_string();
    expect_untouched();
  }
}

TEST_P(EngineFork, EveryCallOfAChildSaysThatItsEngineIsInert) {
  begin();
  const std::vector<Descriptor> batch{{source_, remote_}};
  Result<Prepared> prepared = peer.prepare_write(batch);
  ASSERT_TRUE(prepared);
  Transfer ended = peer.write(source_, remote_);
  ASSERT_TRUE(ended.wait(kPatience).ok());
  std::vector<Transfer> under_way;
  for (int i = 0; i < 100; ++i) under_way.push_back(peer.write(source_, remote_));
  Child child([&] {
    Checks checks;
    std::byte bytes[64];
    constexpr std::chrono::nanoseconds kForever = std::chrono::nanoseconds::max();
    SAYS_SO(peer.write(source_, remote_).wait());
    SAYS_SO(peer.read(source_, remote_, {.report = true}).wait());
    SAYS_SO(peer.write(batch).wait());
    SAYS_SO(peer.post(*prepared).wait());
    SAYS_SO(peer.send(bytes).wait());
    SAYS_SO(peer.prepare_write(batch).status());
    SAYS_SO(peer.lookup("region", kForever).status());
    SAYS_SO(peer.list("", kForever).status());
    SAYS_SO(peer.wait_ready(kForever));
    SAYS_SO(peer.next_event(kForever).status);
    HOLDS(peer.state() == PeerState::kClosed);
    HOLDS(peer.name().empty());
    peer.close();
    SAYS_SO(client->allocate(64).status());
    SAYS_SO(client->register_memory(bytes).status());
    SAYS_SO(client->map_file("/etc/hostname").status());
    SAYS_SO(client->publish("new", source_, Access::kRemoteRead));
    SAYS_SO(server->unpublish("region"));
    SAYS_SO(client->connect("127.0.0.1:1").status());
    SAYS_SO(client->next_event(kForever).second.status);
    HOLDS(!client->accept());
    HOLDS(!client->next_completed());
    HOLDS(!client->poll());
    HOLDS(client->event_fd() == -1);
    HOLDS(client->peers().empty());
    HOLDS(ended.wait().ok());
    for (Transfer& transfer : under_way) {
      transfer.cancel();
      // It may have ended before the fork, but it does not end here.
      const Status end = transfer.wait();
      if (!end.ok()) SAYS_SO(end);
      HOLDS(transfer.done());
    }
    under_way.clear();
    return checks.failed;
  });
  EXPECT_EQ(child.wait(), 0);
  for (Transfer& transfer : under_way) EXPECT_TRUE(transfer.wait(kPatience).ok()) << transfer.status().to_string();
  expect_untouched();
}

// Other threads of the parent hold locks of all kinds while it forks.
TEST_P(EngineFork, ForksAmidTrafficAndAllocationHarmNobody) {
  begin();
  std::atomic<bool> enough{false};
  std::thread traffic([&] {
    while (!enough) EXPECT_TRUE(peer.write(source_, remote_).wait(kPatience).ok());
  });
  std::thread churn([&] {
    while (!enough) {
      const Memory memory = *client->allocate(100'000);
      EXPECT_TRUE(client->publish("churn", memory, Access::kRemoteRead).ok());
      EXPECT_TRUE(server_peer.lookup("churn", kPatience));
      EXPECT_TRUE(client->unpublish("churn").ok());
    }
  });
  for (int round = 0; round < 20; ++round) {
    Child child([&] {
      peer = server_peer = Peer();
      source_ = memory_ = Memory();
      client.reset();
      server.reset();
      return 0;
    });
    EXPECT_EQ(child.wait(), 0);
  }
  enough = true;
  traffic.join();
  churn.join();
  expect_untouched();
}

/// Numbers of descriptors that are sockets.
std::set<int> open_sockets() {
  std::set<int> sockets;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    char link[64] = "";
    const auto length = ::readlinkat(::dirfd(folder), entry->d_name, link, sizeof link - 1);
    if (length > 0 && std::string_view(link).starts_with("socket:")) sockets.insert(std::atoi(entry->d_name));
  }
  ::closedir(folder);
  return sockets;
}

// The parent dies while its child lives: peers see it, and what it listened on is free.
TEST_P(EngineFork, AChildThatLivesOnHidesNoDeath) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer forbids threads in a forked child";
  if (test::over_memif()) GTEST_SKIP() << "DPDK is of one process: a forked child opens no port (docs/dpdk.md)";
  const std::set<int> before = open_sockets();
  EngineConfig config = config_for(GetParam());
  config.transport = "auto";
  config.listen = "127.0.0.1:0";
  put_on_wire(config);
  int words[2], stop[2];
  ASSERT_EQ(::pipe(words), 0);
  ASSERT_EQ(::pipe(stop), 0);
  // An engine that listens, in a process that forks once more. No engine is here yet.
  Child parent([&] {
    Result<Engine> engine = Engine::create(config);
    if (!engine) return 1;
    const std::string address = engine->listen_address() + '\n';
    if (::write(words[1], address.data(), address.size()) < 0) return 2;
    std::optional<Peer> accepted;
    while (!(accepted = engine->accept())) std::this_thread::yield();
    if (::fork() == 0) {
      const bool shares = open_sockets() != before;
      if (::write(words[1], shares ? "shares\n" : "alone\n", shares ? 7 : 6) < 0) return 3;
      ::close(stop[1]);
      char byte;
      return ::read(stop[0], &byte, 1) == 0 ? 0 : 4;  // until the test is over
    }
    ::pause();
    return 5;
  });
  const auto next_word = [&] {
    std::string word;
    for (char byte = 0; ::read(words[0], &byte, 1) == 1 && byte != '\n';) word.push_back(byte);
    return word;
  };
  const std::string address = next_word();
  ASSERT_FALSE(address.empty()) << "no engine in the child";
  EngineConfig client_config = config_for(GetParam());
  put_on_wire(client_config);
  Result<Engine> engine = Engine::create(client_config);
  ASSERT_TRUE(engine) << engine.error().to_string();
  Peer to = *engine->connect(address);
  const Status ready = to.wait_ready(kPatience);
  ASSERT_TRUE(ready.ok()) << ready.to_string();
  EXPECT_EQ(next_word(), "alone") << "the grandchild holds sockets of its parent's engine";
  EXPECT_EQ(parent.end(SIGKILL), -SIGKILL);
  Event event = to.next_event(kPatience);
  while (event.kind != Event::Kind::kClosed && event.kind != Event::Kind::kNone) event = to.next_event(kPatience);
  EXPECT_EQ(event.kind, Event::Kind::kClosed);
  EXPECT_FALSE(event.status.ok()) << "whichever of its connections was seen to end first";
  config.listen = address;
  Result<Engine> successor = Engine::create(config);
  EXPECT_TRUE(successor) << successor.error().to_string();
  for (const int fd : {words[0], words[1], stop[0], stop[1]}) ::close(fd);
}

TEST_P(EngineFork, AChildMakesAnEngineOfItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer forbids threads in a forked child";
  if (test::over_memif()) GTEST_SKIP() << "DPDK is of one process: a forked child opens no port (docs/dpdk.md)";
  begin();
  Child child([&] {
    Checks checks;
    Result<Engine> own = Engine::create(config_for(GetParam()));
    HOLDS(own.has_value());
    if (!own) return 1;
    Peer to = *own->connect(server->listen_address());  // what is known stays known
    HOLDS(to.wait_ready(kPatience).ok());
    Result<RemoteMemory> found = to.lookup("region", kPatience);
    HOLDS(found.has_value());
    Result<Memory> bytes = own->allocate(65536);
    HOLDS(bytes.has_value());
    if (found && bytes) HOLDS(to.write(*bytes, *found).wait(kPatience).ok());
    return checks.failed;
  });
  EXPECT_EQ(child.wait(), 0);
  expect_untouched();
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EngineFork);
INSTANTIATE_TEST_SUITE_P(Ways, EngineFork, testing::ValuesIn(fork_ways()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
