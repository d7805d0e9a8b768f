// Peers that break the control protocol: they are refused or dropped, and the engine goes on serving others.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <thread>

#include "datapath/control_channel.h"
#include "fairlead/engine.h"

namespace fairlead {
namespace {

using control::Frame;

class HostilePeer : public testing::Test {
 protected:
  void SetUp() override {
    EngineConfig config;
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    config.connect_timeout = std::chrono::milliseconds(300);
    config.name = "server";
    Result<Engine> created = Engine::create(config);
    ASSERT_TRUE(created) << created.error().to_string();
    engine_.emplace(std::move(*created));
  }

  UniqueFd dial() {
    const HostPort at = *parse_host_port(engine_->listen_address());
    Result<UniqueFd> fd = datapath::start_connect(at.host, at.port);
    EXPECT_TRUE(fd);
    pollfd writable{fd->get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&writable, 1, 10'000), 1);
    return std::move(*fd);
  }

  static void send_bytes(const UniqueFd& fd, std::string_view bytes) {
    ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  static std::string framed(const Frame& frame) {
    const std::string body = frame.SerializeAsString();
    std::string bytes;
    for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(body.size() >> shift));
    return bytes + body;
  }

  /// Reads frames until the engine closes the connection; true if it did.
  static bool closed_by_engine(const UniqueFd& fd, std::vector<Frame>* frames = nullptr) {
    datapath::FrameReader reader;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd readable{fd.get(), POLLIN, 0};
      ::poll(&readable, 1, 100);
      char bytes[4096];
      const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
      if (n < 0) continue;
      reader.append(bytes, static_cast<std::size_t>(n));
      Frame frame;
      while (true) {
        const Result<bool> next = reader.next(frame);
        if (!next || !*next) break;
        if (frames != nullptr) frames->push_back(frame);
      }
    }
    return false;
  }

  static Frame hello() {
    Frame frame;
    frame.mutable_hello()->set_version_min(1);
    frame.mutable_hello()->set_version_max(1);
    frame.mutable_hello()->set_engine_name("intruder");
    frame.mutable_hello()->set_event_window(16);
    frame.mutable_hello()->set_max_message_bytes(4096);
    auto& tcp = *frame.mutable_hello()->add_transports();
    tcp.set_name("tcp");
    tcp.set_kind("tcp");
    return frame;
  }

  /// Greets properly, then sends `frame`.
  void expect_dropped_after_hello(const Frame& frame) {
    const UniqueFd fd = dial();
    send_bytes(fd, "FAIRLEAD" + framed(hello()) + framed(frame));
    EXPECT_TRUE(closed_by_engine(fd)) << frame.body_case();
  }

  void TearDown() override {
    // Whatever happened before: a good peer is served.
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> client = Engine::create(config);
    ASSERT_TRUE(client);
    Memory memory = *engine_->allocate(4096);
    ASSERT_TRUE(engine_->publish("region", memory, Access::kRemoteWrite).ok());
    Peer peer = *client->connect(engine_->listen_address());
    Result<RemoteMemory> remote = peer.lookup("region");
    ASSERT_TRUE(remote) << remote.error().to_string();
    EXPECT_TRUE(peer.write(*client->allocate(4096), *remote).wait(std::chrono::seconds(30)).ok());
  }

  std::optional<Engine> engine_;
};

TEST_F(HostilePeer, GarbageAndOtherProtocols) {
  for (const std::string_view bytes :
       {std::string_view("GET / HTTP/1.1\r\n\r\n"), std::string_view("\0\0\0\0", 4),
        std::string_view("FAIRLEAD\xff\xff\xff\xff", 12), std::string_view("FAIRLEAD\x04\0\0\0\xff\xff\xff\xff", 16)}) {
    const UniqueFd fd = dial();
    send_bytes(fd, bytes);
    EXPECT_TRUE(closed_by_engine(fd));
  }
  EXPECT_EQ(engine_->stats().handshakes_refused, 4u);
}

TEST_F(HostilePeer, SilenceIsGivenUp) {
  const UniqueFd silent = dial(), half = dial();
  send_bytes(half, "FAIRL");
  EXPECT_TRUE(closed_by_engine(silent));
  EXPECT_TRUE(closed_by_engine(half));
}

TEST_F(HostilePeer, AnotherVersionIsToldWhy) {
  Frame frame = hello();
  frame.mutable_hello()->set_version_min(7);
  frame.mutable_hello()->set_version_max(9);
  const UniqueFd fd = dial();
  send_bytes(fd, "FAIRLEAD" + framed(frame));
  std::vector<Frame> answers;
  EXPECT_TRUE(closed_by_engine(fd, &answers));
  ASSERT_FALSE(answers.empty());
  ASSERT_TRUE(answers[0].has_refused());
  EXPECT_EQ(answers[0].refused().code(), static_cast<std::uint32_t>(Code::kVersionMismatch));
  EXPECT_NE(answers[0].refused().reason().find("7..9"), std::string::npos) << answers[0].refused().reason();
}

TEST_F(HostilePeer, HellosThatMakeNoSense) {
  Frame no_window = hello();
  no_window.mutable_hello()->set_event_window(0);
  Frame many = hello();
  for (int i = 0; i < 100; ++i) many.mutable_hello()->add_transports()->set_kind("tcp");
  Frame not_a_hello;
  not_a_hello.mutable_lookup()->set_name("x");
  for (const Frame& frame : {no_window, many, not_a_hello}) {
    const UniqueFd fd = dial();
    send_bytes(fd, "FAIRLEAD" + framed(frame));
    EXPECT_TRUE(closed_by_engine(fd));
  }
}

TEST_F(HostilePeer, FramesOutOfTurn) {
  Frame again = hello();
  expect_dropped_after_hello(again);
  Frame old_epoch;
  old_epoch.mutable_path_offer()->set_epoch(0);
  expect_dropped_after_hello(old_epoch);
  Frame fence;  // of a path that never was: ignored, and then the set-up times out
  fence.mutable_fence()->set_epoch(5);
  expect_dropped_after_hello(fence);
  Frame empty;
  expect_dropped_after_hello(empty);
}

TEST_F(HostilePeer, OffersThatCannotWorkAreAnswered) {
  for (const int broken : {0, 1, 2}) {
    Frame frame;
    frame.mutable_path_offer()->set_epoch(1);
    frame.mutable_path_offer()->set_active_transport(broken == 0 ? 7 : 0);
    frame.mutable_path_offer()->set_passive_transport(broken == 1 ? 7 : 0);
    frame.mutable_path_offer()->set_description(broken == 2 ? std::string(100'000, 'x') : "nonsense");
    const UniqueFd fd = dial();
    send_bytes(fd, "FAIRLEAD" + framed(hello()) + framed(frame));
    std::vector<Frame> answers;
    EXPECT_TRUE(closed_by_engine(fd, &answers));
    bool told = false;
    for (const Frame& answer : answers) told = told || answer.has_path_down();
    EXPECT_TRUE(told) << broken;
  }
}

TEST_F(HostilePeer, LookupsAreAnsweredAndBounded) {
  Memory memory = *engine_->allocate(64);
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(engine_->publish(std::string(900, 'n') + std::to_string(i), memory, Access::kRemoteRead).ok());
  }
  Frame all;
  all.mutable_lookup()->set_request(9);
  all.mutable_lookup()->set_prefix(true);
  const UniqueFd fd = dial();
  send_bytes(fd, "FAIRLEAD" + framed(hello()) + framed(all));
  std::vector<Frame> answers;
  EXPECT_TRUE(closed_by_engine(fd, &answers));  // it never sets up a path
  bool answered = false;
  for (const Frame& answer : answers) {
    if (!answer.has_regions()) continue;
    answered = true;
    EXPECT_TRUE(answer.regions().more());
    EXPECT_LT(answer.ByteSizeLong(), datapath::FrameReader::kMaxFrame);
  }
  EXPECT_TRUE(answered);
}

TEST_F(HostilePeer, MoreConnectionsThanDescriptorsAreSurvived) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 8; ++i) flood.push_back(dial());
  const rlimit tight{60, before.rlim_max};  // what is open stays open; accept() has no room
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  for (int i = 0; i < 30; ++i) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
    if (!fd) break;
    flood.push_back(std::move(fd));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  flood.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace fairlead
