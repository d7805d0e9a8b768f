// Who runs a client's session at the server: ServerSession in this process, or ProcessSession by one in another.
//
// Threads: one at a time, but for abandon().
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datapath/command/windows.h"
#include "fairlead/status.h"
#include "fairlead/transfer.h"

namespace fairlead::datapath::command {

class SessionRunner {
 public:
  using Clock = std::chrono::steady_clock;
  struct Counts {
    std::uint64_t commands = 0, failures = 0, skipped_unknown = 0, replies = 0;
    std::array<std::uint64_t, 3> failures_by_scope{};  // command, stream, context
  };

  virtual ~SessionRunner() = default;
  /// A message of the client's.
  virtual void take(std::vector<std::byte> message, TrafficClass traffic) = 0;
  /// Its client has another peer now: what the service and the client said over the one before, and was not heard, is
  /// said again. `said`: Attempt and HeardBodies, which the client has proved to be its own.
  virtual void resume(std::vector<std::byte> said) = 0;
  /// Its client, which is told, may reach payload there from now on, and say so in messages. The bytes are there as
  /// long as this is. False: it cannot have them, and nobody was told anything.
  [[nodiscard]] virtual bool take_window(const Window& window) = 0;
  /// It has sent more than could be kept.
  virtual void overrun() = 0;
  /// It ends for a reason that is not its client's, who is told.
  virtual void end(const Status& why) = 0;
  /// Runs what can run, at most some hundred commands and until then or one command longer, and says how far it got.
  /// Whether more can run now.
  /// On that one of the service's devices.
  virtual bool run(Clock::time_point until, std::uint32_t device) = 0;
  /// While it has nothing to run, and nothing has come: whether run() has something to say nevertheless, as what runs
  /// it has gone.
  [[nodiscard]] virtual bool look() noexcept { return false; }
  /// From any thread: what runs is of no use any more. Whether it can be ended is the runner's affair.
  virtual void abandon() noexcept {}
  /// Whether more has come, which take() is to be given when run() returns. Any thread, one at a time.
  virtual void set_news(bool /*is_there*/) noexcept {}

  /// Of the service's devices, bit n is number n.
  struct Devices {
    std::uint32_t all = 0;      // the session has these; before it is welcome, one of those that it may have
    std::uint32_t due = 0;      // more can run there, or has come
    std::uint32_t held = 0;     // commands wait for the client to take what it has asked for, or for its bandwidth
    std::uint32_t pending = 0;  // they are at work on some: look again soon
  };
  [[nodiscard]] virtual const Devices& devices() const noexcept = 0;
  [[nodiscard]] bool is_held() const noexcept { return devices().held != 0; }
  [[nodiscard]] bool is_pending() const noexcept { return devices().pending != 0; }
  /// How often it was seen that a device came further.
  [[nodiscard]] virtual std::uint64_t moves() const noexcept = 0;
  [[nodiscard]] virtual bool is_welcome() const noexcept = 0;
  /// It has ended: the client was told why.
  [[nodiscard]] virtual bool is_over() const noexcept = 0;
  [[nodiscard]] virtual const Counts& counts() const noexcept = 0;
  /// Commands that have come and not run.
  [[nodiscard]] virtual std::uint64_t waiting() const noexcept = 0;
};

}  // namespace fairlead::datapath::command
