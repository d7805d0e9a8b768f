// A channel of a client's whose service is the test: what becomes of commands that are one to the caller.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datapath/command/client_session.h"
#include "datapath/command/codec.h"
#include "fairlead/engine.h"
#include "tests/datapath/command/tcp_engine.h"

namespace fairlead::datapath::command {
namespace {

using fairlead::command::Failure;
using fairlead::command::Scope;
using fairlead::command::SessionOptions;

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{20};

class ClientChannelTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<Peer> to = client_.connect(server_.listen_address());
    ASSERT_TRUE(to && to->wait_ready(kPatience).ok());
    session_ = std::make_shared<ClientSession>(*to, SessionOptions());
    session_->greet(client_.config().max_message_bytes);
    Result<Peer> from = server_.accept(kPatience);
    ASSERT_TRUE(from) << from.error().to_string();
    peer_ = *from;
    say(welcome_message({.version = 1,
                         .channels = 2,
                         .credits = 64,
                         .payload_credit = 30'000,
                         .memory_bytes = 1 << 20,
                         .payload_bytes = 20'000,
                         .parameter_bytes = 1024,
                         .block_threads = 256,
                         .shared_bytes = 1024,
                         .grid = {1, 1, 1}}));
    ASSERT_TRUE(session_->wait_until([&] { return session_->is_welcome(); }, Clock::now() + kPatience))
        << session_->status().to_string();
    channel_ = session_->open_channel();
    ASSERT_NE(channel_, nullptr);
  }
  void say(const std::vector<std::byte>& message) {
    (void)peer_->send(message, kMessageValue, {.traffic = TrafficClass::kCommands});
  }
  Result<std::uint64_t> append(std::uint64_t behind = 0) {
    const ReleaseBody body{7};
    return channel_->append({static_cast<std::uint16_t>(Opcode::kRelease), 0, std::as_bytes(std::span(&body, 1)), {}},
                            behind);
  }

  Engine server_ = engine_at("127.0.0.1:0"), client_ = engine_at("");
  std::optional<Peer> peer_;
  std::shared_ptr<ClientSession> session_;
  ClientChannel* channel_ = nullptr;
};

// Of a copy in pieces some are passed over for a failure, from which another thread recovers before the rest is
// appended.
TEST_F(ClientChannelTest, WhatIsBehindAPieceThatDidNotRunIsNotAppended) {
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) ASSERT_EQ(append().value(), sequence);
  channel_->flush();
  say(reply_message(0, {3, 3, 3, Failure{2, Scope::kCommand, 1, "it failed"}, {}, 0}));
  ASSERT_TRUE(session_->wait_until([&] { return channel_->failure().has_value(); }, Clock::now() + kPatience));
  EXPECT_EQ(append().error().code(), Code::kAborted);
  ASSERT_TRUE(channel_->recover().ok());
  EXPECT_EQ(append(3).error().code(), Code::kAborted) << "it was passed over";
  EXPECT_EQ(append(2).error().code(), Code::kAborted) << "it failed";
  EXPECT_EQ(append(1).value(), 5U) << "it ran";
  EXPECT_EQ(append(5).value(), 6U);
}

}  // namespace
}  // namespace fairlead::datapath::command
