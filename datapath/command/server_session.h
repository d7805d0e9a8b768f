// One client's session at the server: its greeting, its channels, and the running of their commands.
//
// What the client sends that is no message of ours, or more than its credits, ends the session with a reason that it is
// told; so does nothing else. A command that fails is its channel's affair, or, if the context is lost, all its
// channels'. Owns the executor. No input or output but by the Outlet. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/command/server_channel.h"
#include "fairlead/command_service.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath::command {

/// Where a session's words go.
class Outlet {
 public:
  virtual void send(TrafficClass traffic, Bytes message) = 0;
  /// Bytes that the client has yet to take.
  [[nodiscard]] virtual std::uint64_t untaken() = 0;
  /// Whether so many bytes may be copied now; then they are.
  [[nodiscard]] virtual bool may_copy(std::uint64_t /*bytes*/) { return true; }

 protected:
  ~Outlet() = default;
};

class ServerSession {
 public:
  struct Terms {
    std::uint32_t channels = 16;
    std::uint32_t credits = 2048;
    std::uint64_t payload_credit = 8 << 20;
    std::uint64_t held_results = 16 << 20;
    std::uint32_t payload_bytes = kMaxPayload;
  };
  struct Counts {
    std::uint64_t commands = 0, failures = 0, skipped_unknown = 0, replies = 0;
    std::array<std::uint64_t, 3> failures_by_scope{};  // command, stream, context
  };
  using Clock = ServerChannel::Clock;
  using MakeExecutor = std::function<Result<std::unique_ptr<fairlead::command::Executor>>()>;

  /// `make`: called once, when the client has said hello.
  ServerSession(Outlet& outlet, const Terms& terms, MakeExecutor make);

  /// A message of the client's.
  void take(std::vector<std::byte> message, TrafficClass traffic);
  /// It has sent more than could be kept.
  void overrun() { end(Code::kResourceExhausted, "the client sent more than its credits allow"); }
  /// Runs what can run, at most some hundred commands and until then or one command longer, and says how far it got.
  /// Whether more can run now.
  bool run(Clock::time_point until = Clock::time_point::max());
  /// Commands wait for the client to take what it has asked for.
  [[nodiscard]] bool is_held() const noexcept { return held_; }

  [[nodiscard]] bool is_welcome() const noexcept { return executor_ != nullptr; }
  [[nodiscard]] bool is_over() const noexcept { return !ended_.ok(); }
  /// Why it ended: the client was told.
  [[nodiscard]] const Status& ended() const noexcept { return ended_; }
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  /// Commands that have come and not run.
  [[nodiscard]] std::uint64_t waiting() const noexcept;

 private:
  enum class Step : std::uint8_t { kDone, kIdle, kBlocked, kHeld, kTime };

  void greet(Bytes body);
  void take_commands(const MessageHeader& header, std::vector<std::byte> message);
  void take_payload(const MessageHeader& header, std::vector<std::byte> message);
  [[nodiscard]] ServerChannel* channel_of(const MessageHeader& header);
  void end(Code code, std::string why);
  Step run(ServerChannel& channel, std::uint32_t most, Clock::time_point until);
  Step step(ServerChannel& channel);
  [[nodiscard]] std::optional<Step> wait_for(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome execute(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome copy_in(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome copy_out(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome fence(const Record& record);
  fairlead::command::Outcome recover(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome unknown(const Record& record);
  [[nodiscard]] bool takes_long(const Record& record) const noexcept;
  void reply(ServerChannel& channel);

  Outlet& outlet_;
  const Terms terms_;
  MakeExecutor make_;
  std::unique_ptr<fairlead::command::Executor> executor_;
  std::map<std::uint16_t, ServerChannel> channels_;
  std::optional<fairlead::command::Outcome> lost_;  // the context is
  std::vector<std::byte> scratch_;
  Status ended_;
  bool held_ = false;
  bool took_long_ = false;  // the last command
  Counts counts_;
};

}  // namespace fairlead::datapath::command
