// A session of the service on the host executor, fed by hand: no engine, one thread; and records for it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "datapath/command/codec.h"
#include "datapath/command/server_session.h"
#include "gpu/executor/host_executor.h"

namespace fairlead::datapath::command {

using fairlead::command::HostExecutorConfig;

inline std::vector<std::byte> record(std::uint16_t opcode, std::uint16_t flags, Bytes body) {
  std::vector<std::byte> bytes;
  put(bytes, RecordHeader{opcode, flags, static_cast<std::uint32_t>(padded(sizeof(RecordHeader) + body.size()))});
  put_padded(bytes, body);
  return bytes;
}
template <typename Body>
std::vector<std::byte> record(Opcode opcode, const Body& body, Bytes tail = {}, std::uint16_t flags = 0) {
  std::vector<std::byte> bytes;
  put(bytes, body);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return record(static_cast<std::uint16_t>(opcode), flags, bytes);
}

class FedSession : public testing::Test, protected Outlet {
 protected:
  void begin(ServerSession::Terms terms = {}) {
    HostExecutorConfig config;
    config.memory_bytes = 1 << 20;
    add_kernels(config);
    config.kernels.push_back({"fault", {}, {}, [](const auto&) { return Status(Code::kInternal, "a fault"); }, true});
    shared_ = std::make_shared<const HostExecutorConfig>(std::move(config));
    session_ = std::make_unique<ServerSession>(
        static_cast<Outlet&>(*this), terms,
        [this](std::uint32_t) -> Result<std::unique_ptr<fairlead::command::Executor>> { return make_executor(); });
  }
  virtual std::unique_ptr<fairlead::command::Executor> make_executor() {
    return std::make_unique<gpu::HostExecutor>(shared_);
  }
  virtual void add_kernels(HostExecutorConfig&) {}
  void greet(ServerSession::Terms terms = {}, const std::optional<HelloMore>& more = {}) {
    begin(terms);
    session_->take(hello_message({.payload_bytes = 4096}, more), TrafficClass::kCommands);
    ASSERT_TRUE(session_->is_welcome());
    sent_.clear();
  }
  void send(TrafficClass, Bytes message) override { sent_.emplace_back(message.begin(), message.end()); }
  [[nodiscard]] std::uint64_t untaken() override { return untaken_; }

  void give(std::uint16_t channel, std::uint64_t first, const std::vector<std::vector<std::byte>>& records) {
    std::vector<std::byte> message = make_message({static_cast<std::uint8_t>(MessageType::kCommands), 0, channel,
                                                   static_cast<std::uint32_t>(records.size()), first});
    for (const auto& one : records) message.insert(message.end(), one.begin(), one.end());
    session_->take(std::move(message), TrafficClass::kCommands);
  }
  void give_payload(std::uint16_t channel, std::uint64_t sequence, std::size_t bytes) {
    std::vector<std::byte> message =
        make_message({static_cast<std::uint8_t>(MessageType::kPayload), 0, channel, 1, sequence});
    message.resize(message.size() + bytes, std::byte{7});
    session_->take(std::move(message), TrafficClass::kBulk);
  }
  /// On all devices, until nothing can run.
  void run() {
    do {
      for (std::uint32_t left = session_->devices().all; left != 0; left &= left - 1) {
        (void)session_->run(SessionRunner::Clock::time_point::max(),
                            static_cast<std::uint32_t>(std::countr_zero(left)));
      }
    } while (session_->devices().due != 0);
  }
  /// The replies of a channel as one: how far it got, and what failed.
  Reply replies(std::uint16_t channel) {
    Reply all;
    for (const auto& message : sent_) {
      Bytes body = message;
      const auto header = take<MessageHeader>(body);
      if (!header || header->channel != channel) continue;
      if (header->type != static_cast<std::uint8_t>(MessageType::kReply)) continue;
      std::optional<Reply> reply = read_reply(*header, body);
      EXPECT_TRUE(reply);
      if (!reply) continue;
      EXPECT_LE(reply->executed - all.executed, 64u) << "one reply for at most 64 commands";
      all.executed = reply->executed;
      all.accepted = reply->accepted;
      if (reply->failure) all.failure = reply->failure;
    }
    return all;
  }
  /// What the session said at its end.
  Status refusal() {
    if (sent_.empty()) return {};
    Bytes body = sent_.back();
    const auto header = take<MessageHeader>(body);
    return header && header->type == static_cast<std::uint8_t>(MessageType::kRefused) ? refusal_in(body) : Status();
  }

  static std::vector<std::byte> allocate(std::uint64_t handle, std::uint64_t bytes) {
    return record(Opcode::kAllocate, AllocateBody{handle, bytes});
  }
  static std::vector<std::byte> load(std::uint64_t handle, std::string_view name) {
    return record(Opcode::kLoad, LoadBody{handle, name.size()}, std::as_bytes(std::span(name)));
  }
  static std::vector<std::byte> launch(std::uint64_t function) {
    return record(Opcode::kLaunch, LaunchBody{function, {1, 1, 1}, {1, 1, 1}, 0, 0});
  }

  std::shared_ptr<const HostExecutorConfig> shared_;
  std::unique_ptr<ServerSession> session_;
  std::deque<std::vector<std::byte>> sent_;
  std::uint64_t untaken_ = 0;
};

}  // namespace fairlead::datapath::command
