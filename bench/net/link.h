// The initiator's side of a session with a target: requests and answers (JSON messages of value kControl), and the
// strictness that a measurement needs: a path that changes fails the run.
// Threads: one.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "bench/base/json.h"
#include "fairlead/burst.h"
#include "fairlead/engine.h"

namespace fairlead::bench {

inline constexpr std::uint64_t kProtocolVersion = 1;

/// The value of a message says what it is.
enum MessageValue : std::uint64_t {
  kControl = 0,  // JSON
  kCounted = 1,  // payload: count it
  kChecked = 2,  // payload: count it and keep its CRC-32
  kEchoed = 3,   // payload: send it back
};

/// How long a loop that spins waits at a time: less than an engine's threads spin before they sleep
/// (EngineConfig::spin). Then it lets others run: where initiator and target must share a core, each would else spin
/// through its whole time slice while the other has the answer.
inline constexpr std::chrono::microseconds kSpinning{20};
/// About as long, where the engine is polled.
inline constexpr unsigned kPollsInVain = 256;

class Link {
 public:
  Link(Engine* engine, Peer peer) : engine_(engine), peer_(std::move(peer)) {}

  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  [[nodiscard]] Peer& peer() noexcept { return peer_; }

  /// Sends {"type": TYPE, fields...} and waits for the answer. Errors: what the target refused, the end of the session.
  Result<Json> ask(std::string_view type, Json::Object fields = {});
  /// The next notification or payload message, spinning.
  Result<Event> next_spinning();
  /// Waits for a transfer's end, spinning: the lowest latency.
  Status finish(const Transfer& transfer);
  /// Polls the engine until `done`, which may look at what no event tells of. Errors: those of check().
  Status poll_until(const std::function<bool()>& done);
  /// Lets the engine work until then, asleep as far as it can. Errors: those of check().
  Status idle_until(std::chrono::steady_clock::time_point when);
  /// Waits for a transfer's end as applications do: the engine spins a little, then sleeps.
  Status wait(const Transfer& transfer);
  /// Until so many of its operations have ended.
  Status wait(Burst& burst, std::uint64_t count);
  /// Not ok once a path changed or the session ended. Cheap; never blocks.
  Status check();

 private:
  /// Whether the run may go on after `event`; else failed_ says why not.
  bool acceptable(const Event& event);

  Engine* engine_;
  Peer peer_;
  Status failed_;
};

}  // namespace fairlead::bench
