// A push server on a thread of its own, and what its tests have in common.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/crc.h"
#include "cli/push_server.h"
#include "cli/session.h"

namespace fairlead::cli {

// Over tcp on loopback.
class PushServerTest : public testing::Test {
 protected:
  explicit PushServerTest(std::chrono::milliseconds stalled = std::chrono::minutes(5), std::uint64_t most = 950'000)
      : stalled_(stalled), console_("test"), engine_(make_engine()), store_(&*engine_, most + 98'576, most) {
    thread_ = std::thread([this] { serve(); });
  }
  ~PushServerTest() override {
    stop_ = true;
    thread_.join();
  }

  static Result<Engine> make_engine() {
    EngineConfig config;
    config.listen = "127.0.0.1:0";
    config.transport = "tcp";
    return Engine::create(config);
  }

  void serve() {
    PushServer server(&store_, &console_, &counters_,
                      {.check = Check::kOnArrival, .stalled = stalled_, .populate = &populate});
    while (!stop_) {
      while (auto peer = engine_->accept()) server.on_connected(*peer);
      const auto [peer, event] = engine_->next_event(std::chrono::milliseconds(20));
      if (event.kind != Event::Kind::kNone) server.on_event(peer, event);
      server.progress();
      if (drain_ && !drained_.exchange(true)) server.drain();
      busy_ = server.busy();
    }
  }

  Session connect() {
    EngineConfig config;
    config.transport = "tcp";
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().to_string();
    Result<Session> session = Session::open(*std::move(engine), engine_->listen_address(), &client_console_);
    EXPECT_TRUE(session) << session.error().to_string();
    return *std::move(session);
  }

  // Announces one tensor of these bytes; gives where to write it.
  Result<RemoteMemory> announce(Session& session, std::span<const std::byte> bytes, const std::string& model = "m",
                                const std::string& name = "weight") {
    const FileTensor tensor{name, "U8", {static_cast<std::int64_t>(bytes.size())}, 0, bytes.size()};
    EXPECT_TRUE(session.send(PushBegin{model, 1, 1, bytes.size()}).ok());
    EXPECT_TRUE(session.send(ModelFile{"m.safetensors", {}, 1}).ok());
    EXPECT_TRUE(session.send(TensorBatch{{{tensor, {}}}}).ok());
    Result<PushReady> ready = session.expect<PushReady>();
    if (!ready) return ready.error();
    return session.peer().lookup(ready->prefix + "0");
  }

  template <typename Condition>
  static void eventually(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(condition());
  }

  // A client that misbehaved is told why, loses its session, and leaves nothing behind.
  void expect_expelled(Session& session, std::string_view why) {
    const Result<PushResult> answer = session.expect<PushResult>();
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message(), testing::HasSubstr(std::string(why)));
    eventually([&] { return session.peer().state() == PeerState::kClosed; });
    eventually([&] { return counters_.clients == 0 && store_.bytes_held() == 0; });
  }

  // Clearing memory takes for ever while one of these is set.
  static inline std::atomic<bool> clearing_lasts_{false}, clearing_cannot_stop_{false};
  static void populate(std::span<std::byte> bytes, const std::stop_token& stop) noexcept {
    while (clearing_cannot_stop_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    while (clearing_lasts_ && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    memreg::populate(bytes, stop);
  }

  const std::chrono::milliseconds stalled_;
  Console console_;  // of the server's thread
  Console client_console_{"test client"};
  Result<Engine> engine_;
  ModelStore store_;
  ServeCounters counters_;
  std::atomic<bool> stop_{false}, drain_{false}, drained_{false}, busy_{false};
  std::thread thread_;
};

inline std::vector<std::byte> some_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

// Pushes one tensor as the whole of model "m".
inline Result<PushResult> push_one(Session& session, const RemoteMemory& remote, std::span<const std::byte> bytes) {
  Result<Memory> local = session.engine().allocate(bytes.size());
  if (!local) return local.error();
  std::copy(bytes.begin(), bytes.end(), local->data());
  EXPECT_TRUE(session.peer().write(*local, remote, {.notify = 0}).wait().ok());
  EXPECT_TRUE(session.send(PushFinish{{crc32(bytes)}}).ok());
  return session.expect<PushResult>();
}

}  // namespace fairlead::cli
