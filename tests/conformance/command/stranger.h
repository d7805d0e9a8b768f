// A client of a service of commands that is no Session, and says what it likes; and a service that has no sessions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datapath/command/resume/points.h"
#include "fairlead/engine.h"
#include "tests/conformance/engine_pair.h"

namespace fairlead {

class Stranger {
 public:
  using Attempt = datapath::command::Attempt;
  using Bytes = datapath::command::Bytes;
  using HeardBody = datapath::command::HeardBody;
  using KeptBody = datapath::command::KeptBody;
  using MessageHeader = datapath::command::MessageHeader;
  using MessageType = datapath::command::MessageType;
  using SessionKey = datapath::command::SessionKey;

  Stranger(Engine& engine, const std::string& address) {
    Result<Peer> connected = engine.connect(address);
    EXPECT_TRUE(connected);
    peer = *connected;
    EXPECT_TRUE(peer.wait_ready(kPatience).ok());
  }
  void say(Bytes message) {
    (void)peer.send(message, datapath::command::kMessageValue, {.traffic = TrafficClass::kCommands});
  }
  /// The next message of the service's: its header, and what follows. Nothing: the session has ended.
  std::optional<MessageHeader> hear() {
    for (;;) {
      Event event = peer.next_event(kPatience);
      EXPECT_NE(event.kind == Event::Kind::kNone && event.status.ok(), true) << "nothing comes";
      if (event.kind == Event::Kind::kNone || event.kind == Event::Kind::kClosed) return std::nullopt;
      if (event.kind != Event::Kind::kMessage) continue;
      bytes = std::move(event.data);
      body = bytes;
      return datapath::command::take<MessageHeader>(body);
    }
  }
  std::optional<MessageHeader> hear(MessageType type) {
    const auto header = hear();
    EXPECT_TRUE(header && datapath::command::is_message(*header, type));
    return header;
  }
  /// Begins a session that is to be kept, or not.
  SessionKey begin(std::uint32_t keep = 1) {
    say(datapath::command::hello_message({.payload_bytes = 4096}, datapath::command::HelloMore{},
                                         datapath::command::HelloLast{.keep = keep}));
    hear(MessageType::kWelcome);
    body = body.subspan(sizeof(datapath::command::Welcome) + sizeof(datapath::command::WelcomeMore) +
                        sizeof(datapath::command::WelcomeLast));
    const auto kept = datapath::command::take<datapath::command::WelcomeKept>(body);
    EXPECT_TRUE(kept);
    EXPECT_EQ(kept && kept->keep_ms != 0, keep == 1);
    return kept ? SessionKey{kept->id, kept->secret} : SessionKey();
  }
  /// Names the session that it wants. ok: it is challenged.
  Status ask(const SessionKey& key) {
    attempt.client = datapath::command::make_nonce();
    auto message = datapath::command::make_message({.type = static_cast<std::uint8_t>(MessageType::kResume)});
    datapath::command::put(message, datapath::command::ResumeBody{key.id, attempt.client});
    say(message);
    const auto header = hear();
    if (header && datapath::command::is_message(*header, MessageType::kChallenge)) {
      attempt.service = datapath::command::take<datapath::command::ChallengeBody>(body)->nonce;
      return {};
    }
    return datapath::command::refusal_in(body);
  }
  void prove(const SessionKey& key, const std::vector<HeardBody>& heard = {}) {
    say(datapath::command::points_message(key, attempt, heard));
  }
  /// What the service says to have; nothing: it refused.
  std::optional<std::vector<KeptBody>> resumed(const SessionKey& key) {
    const auto header = hear();
    if (!header || !datapath::command::is_message(*header, MessageType::kResumed)) return std::nullopt;
    auto has = datapath::command::read_points<KeptBody>(key, attempt, header->count, body);
    EXPECT_TRUE(has) << "the service shows that it has the session";
    return has;
  }
  Status refusal() { return datapath::command::refusal_in(body); }
  /// Whatever else it is told, why its session ended.
  Status fate() {
    Status why;
    while (const auto header = hear()) {
      if (datapath::command::is_message(*header, MessageType::kRefused)) why = refusal();
    }
    return why;
  }
  void give_marks(std::uint64_t first, std::uint32_t count) {
    auto message = datapath::command::make_message(
        {.type = static_cast<std::uint8_t>(MessageType::kCommands), .count = count, .sequence = first});
    for (std::uint32_t i = 0; i < count; ++i) {
      datapath::command::put(
          message, datapath::command::RecordHeader{static_cast<std::uint16_t>(datapath::command::Opcode::kMark), 0, 8});
    }
    say(message);
  }
  /// Until so many commands of channel 0 have run.
  void await(std::uint64_t executed) {
    for (auto header = hear(); header; header = hear()) {
      if (datapath::command::is_message(*header, MessageType::kReply) && header->sequence >= executed) return;
    }
    ADD_FAILURE() << "command " << executed << " did not run";
  }

  Peer peer;
  std::vector<std::byte> bytes;
  Bytes body;
  Attempt attempt;
};

/// Refuses who comes back, for want of room.
class BusyService {
 public:
  using MessageType = datapath::command::MessageType;

  /// Who wants to go on with a session; if it is to show that it is his, he has said so.
  Peer await(bool with_proof) {
    Peer asks = hear();
    if (!with_proof) return asks;
    auto message = datapath::command::make_message({.type = static_cast<std::uint8_t>(MessageType::kChallenge)});
    datapath::command::put(message, datapath::command::ChallengeBody{datapath::command::make_nonce()});
    say(asks, message);
    EXPECT_EQ(hear(), asks);
    return asks;
  }
  static void refuse(const Peer& who) {
    say(who, datapath::command::refused_message({Code::kResourceExhausted, "it is busy"}));
  }

  Engine engine = listening();

 private:
  static Engine listening() {
    EngineConfig config;
    config.transport = "tcp";
    config.listen = "127.0.0.1:0";
    Result<Engine> made = Engine::create(config);
    EXPECT_TRUE(made) << made.error().to_string();
    return *std::move(made);
  }
  /// Who says something.
  Peer hear() {
    for (;;) {
      while (engine.accept()) {
      }
      auto [from, event] = engine.next_event(kPatience);
      if (event.kind == Event::Kind::kMessage) return from;
    }
  }
  static void say(Peer to, const std::vector<std::byte>& message) {
    (void)to.send(message, datapath::command::kMessageValue, {.traffic = TrafficClass::kCommands});
  }
};

}  // namespace fairlead
