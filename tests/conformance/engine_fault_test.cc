// What goes wrong by the application's hand: memory that goes, regions that are withdrawn, handles that are misused.
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/unique_fd.h"
#include "fairlead/log.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {
namespace {

class EngineFault : public testing::TestWithParam<Way>, public EnginePair {
 protected:
  void SetUp() override {
    EngineConfig server = config_for(GetParam());
    server.transport = "auto";
    start(server, config_for(GetParam()));
  }
  void lose_memory_here(bool writes);
};

std::atomic<int> warnings{0};
void count_warnings(LogLevel level, std::string_view) { warnings += level == LogLevel::kWarning ? 1 : 0; }

/// Pages of this process; gone() takes those from `first` on away, so that nobody else gets their addresses meanwhile.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes), at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { ::munmap(at_, bytes_); }
  [[nodiscard]] std::span<std::byte> bytes() const { return {static_cast<std::byte*>(at_), bytes_}; }
  void gone(std::size_t first = 0) {
    std::byte* const from = static_cast<std::byte*>(at_) + first;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    ASSERT_EQ(::mmap(from, bytes_ - first, PROT_NONE, kFlags, -1, 0), from);
  }

 private:
  std::size_t bytes_;
  void* at_;
};

constexpr const char* kKeepsPages =
    "the system's device pins what is registered: it has the pages though they are unmapped";
bool keeps_pages(const Way& way) { return way.name == "device"; }

// The smallest go through the receiver's buffer, the larger ones straight into memory.
TEST_P(EngineFault, TargetMemoryThatIsGoneFailsOnlyItsOwnTransfer) {
  if (keeps_pages(GetParam())) GTEST_SKIP() << kKeepsPages;
  auto [good, remote_good] = target("good", 4096);
  Memory source = buffer(*client, std::size_t{1} << 20, 7);
  struct Case {
    std::size_t size, gone_from;
  };
  for (const auto& [size, gone_from] :
       {Case{8, 0}, Case{4096, 0}, Case{std::size_t{1} << 20, 0}, Case{std::size_t{1} << 20, std::size_t{1} << 19}}) {
    for (const bool write : {true, false}) {
      Pages pages(size < 4096 ? 4096 : size);
      Result<Memory> lost = server->register_memory(pages.bytes());
      ASSERT_TRUE(lost) << lost.error().to_string();
      ASSERT_TRUE(server->publish("lost", *lost, Access::kRemoteReadWrite).ok());
      Result<RemoteMemory> remote = peer.lookup("lost", kPatience);
      ASSERT_TRUE(remote) << remote.error().to_string();
      pages.gone(gone_from);
      SCOPED_TRACE(::testing::Message() << (write ? "write of " : "read of ") << size << " bytes, gone from "
                                        << gone_from);
      const Memory here = source.slice(0, size);
      expect_failure(write ? peer.write(here, remote->slice(0, size)) : peer.read(here, remote->slice(0, size)),
                     Code::kProtectionError, "refused access to region 'lost'");
      Transfer innocent = peer.write(source.slice(0, 4096), remote_good);
      EXPECT_TRUE(innocent.wait(kPatience).ok()) << innocent.status().to_string();
      ASSERT_TRUE(server->unpublish("lost").ok());
    }
  }
  EXPECT_EQ(peer.transport(), GetParam().transport);
}

void EngineFault::lose_memory_here(bool writes) {
  auto [good, remote_good] = target("good", 65536);
  Memory source = buffer(*client, 4096, 7);
  for (const std::size_t size : {std::size_t{8}, std::size_t{65536}}) {
    Pages pages(65536);
    Result<Memory> lost = client->register_memory(pages.bytes());
    ASSERT_TRUE(lost) << lost.error().to_string();
    pages.gone();
    const Memory here = lost->slice(0, size);
    const RemoteMemory there = remote_good.slice(0, size);
    Transfer moved = writes ? peer.write(here, there) : peer.read(here, there);
    EXPECT_FALSE(moved.wait(kPatience).ok());
    EXPECT_FALSE(moved.status().message().empty());
    // A queue pair goes down for it, and the session with it where nothing else may carry it.
    if (GetParam().transport != "tcp" && GetParam().one_sided) break;
    Transfer innocent = peer.write(source, remote_good.slice(0, 4096));
    EXPECT_TRUE(innocent.wait(kPatience).ok()) << innocent.status().to_string();
  }
}

TEST_P(EngineFault, MemoryThatIsGoneHereFailsItsRead) {
  if (keeps_pages(GetParam())) GTEST_SKIP() << kKeepsPages;
  lose_memory_here(false);
}

TEST_P(EngineFault, MemoryThatIsGoneHereFailsItsWrite) {
  if (keeps_pages(GetParam())) GTEST_SKIP() << kKeepsPages;
  lose_memory_here(true);
}

// On a queue pair a refusal costs the path. What the owner refused once is not asked for again.
TEST_P(EngineFault, WritesToAWithdrawnRegionCostOnePathAtMost) {
  auto [withdrawn, remote] = target("withdrawn", 65536);
  ASSERT_TRUE(server->unpublish("withdrawn").ok());
  Memory source = buffer(*client, 1024, 9);
  warnings = 0;
  set_log_level(LogLevel::kWarning);
  set_log_sink(&count_warnings);
  std::vector<Transfer> writes;
  for (std::size_t i = 0; i < 20; ++i) writes.push_back(peer.write(source, remote.slice(i * 1024, 1024)));
  for (const Transfer& write : writes) expect_failure(write, Code::kProtectionError, "region 'withdrawn'");
  for (std::size_t i = 0; i < 20; ++i) {
    expect_failure(peer.write(source, remote.slice(i * 1024, 1024)), Code::kProtectionError, "region 'withdrawn'");
  }
  // Published anew it is another region.
  ASSERT_TRUE(server->publish("withdrawn", withdrawn, Access::kRemoteWrite).ok());
  Result<RemoteMemory> again = peer.lookup("withdrawn", kPatience);
  ASSERT_TRUE(again) << again.error().to_string();
  Transfer written = peer.write(source, again->slice(0, 1024));
  EXPECT_TRUE(written.wait(kPatience).ok()) << written.status().to_string();
  set_log_sink(nullptr);
  int changes = 0;
  for (Event event = peer.next_event(); event.kind != Event::Kind::kNone; event = peer.next_event()) {
    changes += event.kind == Event::Kind::kPathChanged ? 1 : 0;
  }
  EXPECT_LE(changes, 1);
  EXPECT_LE(warnings, 8) << "each end says that a path died, was fenced and was replaced";
}

TEST_P(EngineFault, MemoryOfAnotherEngineIsRefused) {
  auto [memory, remote] = target("region", 4096);
  const Memory elsewhere = buffer(*server, 4096, 1);
  expect_failure(peer.write(elsewhere, remote), Code::kInvalidArgument, "another engine");
  expect_failure(peer.read(elsewhere, remote), Code::kInvalidArgument, "another engine");
  EXPECT_FALSE(peer.prepare_write(std::vector<Descriptor>{{elsewhere, remote}}));
  EXPECT_EQ(peer.state(), PeerState::kReady);
}

TEST_P(EngineFault, NamesThatAreTooLongAreRefusedHere) {
  auto [memory, remote] = target("region", 64);
  for (const std::size_t size : {std::size_t{1025}, (std::size_t{1} << 20) + 1}) {
    const std::string name(size, 'n');
    for (const Status& end : {peer.lookup(name, kPatience).status(), peer.list(name, kPatience).status()}) {
      EXPECT_EQ(end.code(), Code::kInvalidArgument);
      EXPECT_NE(end.message().find("1 to 1024 bytes"), std::string::npos) << end.message().substr(0, 200);
    }
  }
  EXPECT_TRUE(peer.lookup("region", kPatience)) << "the session goes on";
}

TEST_P(EngineFault, ManyLookupsAtOnceAreAllAnswered) {
  Memory memory = buffer(*server, 64);
  for (int i = 0; i < 64; ++i) {
    ASSERT_TRUE(server->publish("many/" + std::to_string(i), memory, Access::kRemoteRead).ok());
  }
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&, i] { found += peer.lookup("many/" + std::to_string(i), kPatience) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 64);
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineFault, testing::ValuesIn(ways()),
                         [](const auto& info) { return info.param.name; });

// ---- without a peer

Engine engine_alone(std::string listen = "") {
  EngineConfig config = config_for({"alone", "tcp"});
  config.listen = std::move(listen);
  Result<Engine> engine = Engine::create(config);
  EXPECT_TRUE(engine) << engine.error().to_string();
  return std::move(*engine);
}

TEST(Registration, TakesOnlyMemoryThatIsThere) {
  Engine engine = engine_alone();
  Pages pages(65536);
  const auto refused = [&](std::span<std::byte> bytes) {
    const Result<Memory> memory = engine.register_memory(bytes);
    EXPECT_FALSE(memory) << bytes.data() << " " << bytes.size();
    if (!memory) {
      EXPECT_EQ(memory.error().code(), Code::kInvalidArgument) << memory.error().to_string();
      EXPECT_NE(memory.error().message().find("bytes at "), std::string::npos) << memory.error().message();
    }
  };
  refused({static_cast<std::byte*>(nullptr), 4096});
  refused({pages.bytes().data(), std::size_t{1} << 60});
  refused({pages.bytes().data(), SIZE_MAX - 100});
  EXPECT_TRUE(engine.register_memory(pages.bytes()));
  EXPECT_TRUE(engine.register_memory(pages.bytes().subspan(5, 1)));
  ASSERT_EQ(::mprotect(pages.bytes().data() + 32768, 32768, PROT_NONE), 0);
  refused(pages.bytes());
  refused(pages.bytes().subspan(32768));
  EXPECT_TRUE(engine.register_memory(pages.bytes().first(32768)));
  ASSERT_EQ(::munmap(pages.bytes().data() + 16384, 16384), 0);
  refused(pages.bytes().first(32768));
  EXPECT_TRUE(engine.register_memory(pages.bytes().first(16384)));
}

TEST(Handles, AnEngineThatWasMovedFromSaysSo) {
  Engine engine = engine_alone();
  Engine other = std::move(engine);
  std::byte bytes[64];
  const Memory memory = *other.allocate(64);
  // NOLINTBEGIN(bugprone-use-after-move): what it is about
  for (const Status& end : {engine.allocate(64).status(), engine.register_memory(bytes).status(),
                            engine.map_file("/etc/hostname").status(), engine.publish("x", memory, Access::kRemoteRead),
                            engine.unpublish("x"), engine.connect("127.0.0.1:1").status()}) {
    EXPECT_EQ(end.code(), Code::kInvalidArgument) << end.to_string();
    EXPECT_NE(end.message().find("moved from"), std::string::npos) << end.message();
  }
  EXPECT_EQ(engine.listen_address(), "");
  EXPECT_EQ(engine.config().transport, EngineConfig().transport);
  EXPECT_FALSE(engine.accept());
  EXPECT_EQ(engine.event_fd(), -1);
  EXPECT_NE(engine.next_event(std::chrono::seconds(1)).second.status.message().find("moved from"), std::string::npos);
  EXPECT_FALSE(engine.next_completed());
  EXPECT_FALSE(engine.poll());
  EXPECT_TRUE(engine.devices().empty());
  EXPECT_TRUE(engine.peers().empty());
  EXPECT_EQ(engine.stats().registered_bytes, 0u);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(other.allocate(64));
}

class EngineEnd : public testing::TestWithParam<Way>, public EnginePair {};

// Threads deep inside each call that waits, on a session that lives and on one that is still being made.
TEST_P(EngineEnd, EndsEveryWait) {
  const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);
  ASSERT_EQ(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  for (int round = 0; round < 3; ++round) {
    EngineConfig config = config_for(GetParam());
    config.connect_timeout = kPatience;
    EngineConfig server_config = config;
    server_config.transport = "auto";
    server_config.max_pending_events = 16;
    start(server_config, config);
    Engine& engine = *client;
    Result<Peer> waiting_for = engine.connect("127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
    ASSERT_TRUE(waiting_for);
    std::vector<Transfer> sent;  // more than a server takes whose program takes none
    for (int i = 0; i < 1000; ++i) sent.push_back(peer.send(std::as_bytes(std::span("x"))));
    while (engine.next_event().second.kind != Event::Kind::kNone) {
    }
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::vector<Status> ends;
    const auto wait_in = [&](auto call) {
      threads.emplace_back([&, call]() mutable {
        ++waiting;
        const Status end = call();
        const std::lock_guard lock(mutex);
        ends.push_back(end);
      });
    };
    wait_in([last = sent.back()]() mutable { return last.wait(kPatience); });
    wait_in([early = *waiting_for]() mutable { return early.wait_ready(kPatience); });
    wait_in([early = *waiting_for]() mutable { return early.lookup("region", kPatience).status(); });
    wait_in([early = *waiting_for]() mutable { return early.list("", kPatience).status(); });
    wait_in([to = peer]() mutable {
      Event event;
      while ((event = to.next_event(kPatience)).kind != Event::Kind::kClosed && event.kind != Event::Kind::kNone) {
      }
      return event.status;
    });
    wait_in([&engine] {  // its last events, then the reason for which there are no more
      Event event;
      while ((event = engine.next_event(kPatience).second).status.ok() && event.kind != Event::Kind::kNone) {
      }
      return event.status;
    });
    while (waiting != 6) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // so that they are deep inside; less tests less
    client.reset();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(ends.size(), 6u);
    for (const Status& end : ends) EXPECT_EQ(end.code(), Code::kCancelled) << end.to_string();
    // The handles stay good.
    EXPECT_FALSE(peer.lookup("region", kPatience));
    EXPECT_FALSE(waiting_for->wait_ready(kPatience).ok());
    EXPECT_FALSE(peer.send({}).wait(kPatience).ok());
    server.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineEnd, testing::ValuesIn(ways()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fairlead
