// One client's session at the server: its greeting, its channels, and the running of their commands.
//
// What the client sends that is no message of ours, or more than its credits, ends the session with a reason that it is
// told; so does nothing else. A command that fails is its channel's affair, or, if the context is lost, all its
// channels'. Owns the executor. No input or output but by the Outlet. Threads: one at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/command/device/server_device.h"
#include "datapath/command/meter.h"
#include "datapath/command/resume/proof.h"
#include "datapath/command/server_channels.h"
#include "datapath/command/server_modules.h"
#include "datapath/command/session_runner.h"
#include "fairlead/command_service.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath::command {

/// Where a session's words go.
class Outlet {
 public:
  static constexpr std::uint64_t kMessageCost = 1024;  // bytes that a message counts for besides its own

  virtual void send(TrafficClass traffic, Bytes message) = 0;
  /// Bytes that the client has yet to take.
  [[nodiscard]] virtual std::uint64_t untaken() = 0;
  /// Whether so many bytes may be copied now; then they are.
  [[nodiscard]] virtual bool may_copy(std::uint64_t /*bytes*/) { return true; }
  /// The same for who copies elsewhere, and says later how much: above 0, one may. Nothing: there is no limit.
  [[nodiscard]] virtual std::optional<std::int64_t> copy_level() { return std::nullopt; }
  virtual void charge_copies(std::uint64_t /*bytes*/) {}
  /// From any thread: more has come, which is taken when run() returns.
  [[nodiscard]] virtual bool has_news() const { return false; }
  /// The time, which tests may hold in their hands.
  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

 protected:
  ~Outlet() = default;
};

class ServerSession final : public SessionRunner {
 public:
  struct Terms {
    std::uint32_t channels = 16;
    std::uint32_t credits = 2048;
    std::uint64_t payload_credit = 8 << 20;
    std::uint64_t held_results = 16 << 20;
    std::uint32_t payload_bytes = kMaxPayload;
    std::uint64_t module_bytes = 64 << 20;
    std::uint32_t graph_records = 65'536;
    std::uint64_t graph_bytes = 16 << 20;
    SessionKey key{};
    std::uint64_t keep_ms = 0;  // that it is kept while its client is away, if that wishes it; 0: never
    std::uint32_t devices = 1;  // that the client may use, of the service's: bit n is device n
  };
  using MakeExecutor = std::function<Result<std::unique_ptr<fairlead::command::Executor>>(std::uint32_t device)>;

  /// `make`: called when the client has said hello, once for each device that it gets.
  /// `meter`: where it says which command runs; null: nowhere. `modules`: the service's; null: each image is asked for.
  ServerSession(Outlet& outlet, const Terms& terms, MakeExecutor make, SessionMeter* meter = nullptr,
                std::shared_ptr<ImageStore> modules = nullptr);

  void take(std::vector<std::byte> message, TrafficClass traffic) override;
  void resume(std::vector<std::byte> said) override;
  bool take_window(const Window& window) override {
    take_window(window.memory.bytes(), window.capability, window.is_for_reads);
    return true;
  }
  /// The same in a process that has it mapped, or, if it is empty, could not.
  void take_window(std::span<std::byte> window, std::string_view capability, bool is_for_reads = false);
  void overrun() override { end(Code::kResourceExhausted, "the client sent more than its credits allow"); }
  void end(const Status& why) override { end(why.code(), why.message()); }
  bool run(Clock::time_point until = Clock::time_point::max(), std::uint32_t device = 0) override;
  [[nodiscard]] const Devices& devices() const noexcept override { return now_; }
  [[nodiscard]] std::uint64_t moves() const noexcept override { return moves_; }

  [[nodiscard]] bool is_welcome() const noexcept override { return !devices_.empty(); }
  [[nodiscard]] bool is_over() const noexcept override { return !ended_.ok(); }
  /// Why it ended: the client was told.
  [[nodiscard]] const Status& ended() const noexcept { return ended_; }
  [[nodiscard]] const Counts& counts() const noexcept override { return counts_; }
  [[nodiscard]] std::uint64_t waiting() const noexcept override;

 private:
  enum class Step : std::uint8_t { kDone, kIdle, kBlocked, kHeld, kTurnOver, kTime, kNews };

  void greet(Bytes body);
  [[nodiscard]] Status begin_devices(std::uint32_t chosen, std::uint16_t version, const HelloMore& wish);
  [[nodiscard]] ServerDevice& device_of(const ServerChannel& channel) noexcept { return devices_[channel.device()]; }
  void take_channel(const MessageHeader& header, Bytes body);
  void take_commands(const MessageHeader& header, std::vector<std::byte> message);
  void take_payload(const MessageHeader& header, std::vector<std::byte> message);
  void take_placed(const MessageHeader& header, Bytes body);
  /// The channel that takes so many bytes for that command, of which there may be `most`. Null: none does; the session
  /// may have ended.
  [[nodiscard]] ServerChannel* payload_channel(const MessageHeader& header, std::uint64_t bytes, std::uint64_t most);
  void refuse_order(const MessageHeader& header);
  void take_image(const MessageHeader& header, Bytes body);
  void take_heard(const MessageHeader& header);
  /// False: the session has ended, as what the client says to have heard cannot be.
  bool hear(ServerChannel& channel, std::uint64_t sequence);
  [[nodiscard]] bool has_unheard_room(std::uint64_t bytes);
  void say_again(ServerChannel& channel);
  void ask_for_image(const ServerChannel& channel);
  [[nodiscard]] ServerChannel* channel_of(const MessageHeader& header);
  void end(Code code, std::string why);
  /// Whether more can run now.
  bool run(ServerDevice& device, ChannelOrder& channels, Clock::time_point until);
  /// `gives_way`: to what comes meanwhile.
  Step run(ServerChannel& channel, std::uint32_t most, bool gives_way, Clock::time_point until);
  std::uint32_t launch_again(ServerChannel& channel, std::uint32_t most);
  Step step(ServerChannel& channel);
  void tell_meter(std::uint16_t channel, std::uint64_t sequence) noexcept;
  void failed(ServerChannel& channel, fairlead::command::Outcome outcome);
  [[nodiscard]] std::optional<Step> wait_for(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome execute(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome copy_in(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome copy_out(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome copy_to_window(ServerChannel& channel, const Record& record);
  /// Whether a fence waits for that command of a channel; of another device it waits until that is complete.
  [[nodiscard]] bool waits_for(const ServerChannel& channel, const FenceBody& mark);
  fairlead::command::Outcome fence(const ServerChannel& channel, const Record& record);
  fairlead::command::Outcome recover(ServerChannel& channel, const Record& record);
  /// Whether all of it is here, or nothing will come.
  [[nodiscard]] bool has_come_across(ServerChannel& channel, const CopyAcrossBody& body);
  fairlead::command::Outcome copy_across(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome load_module(ServerDevice& device, const Record& record);
  static fairlead::command::Outcome load_from(ServerDevice& device, const Record& record);
  fairlead::command::Outcome make_graph(ServerChannel& channel, const Record& record);
  fairlead::command::Outcome unknown(const Record& record);
  /// What the channel's device did meanwhile.
  void follow(ServerChannel& channel);
  /// It may take the bytes over.
  void give_result(ServerChannel& channel, std::uint64_t sequence, std::vector<std::byte>& message);
  void send_result(ServerChannel& channel, std::uint64_t sequence, std::vector<std::byte>& message);
  void lose(ServerDevice& device, const fairlead::command::Outcome& outcome);
  [[nodiscard]] std::uint64_t kept_bytes() noexcept;
  [[nodiscard]] static bool takes_long(ServerDevice& device, const Record& record) noexcept;
  void reply(ServerChannel& channel);

  Outlet& outlet_;
  const Terms terms_;
  MakeExecutor make_;
  SessionMeter* const meter_;
  ServerModules modules_;
  ServerChannels channels_;
  ServerChannels last_channels_;       // of a session that has ended: nothing runs there, but what ran may write there
  std::vector<ServerDevice> devices_;  // the session's, by number; their executors may write into what channels keep
  std::vector<std::byte> scratch_, reply_;
  std::span<std::byte> window_;
  Status ended_;
  bool kept_ = false;  // while its client is away
  Devices now_;
  std::uint32_t fenced_ = 0;    // devices of which a channel waits for another device's, or for its image
  bool moved_ = false;          // something did, since the last device's turn began
  bool took_long_ = false;      // the last command
  std::uint32_t unlooked_ = 0;  // commands since the last look at the clock
  std::uint64_t moves_ = 0;
  Counts counts_;
};

}  // namespace fairlead::datapath::command
