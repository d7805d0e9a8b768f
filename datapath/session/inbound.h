// What a peer's sequenced messages become: events, each once, in order, and the credits that go back for them.
//
// A notification is an event by itself; a message may come in fragments, which are put together here. The peer may have
// as many events under way as Limits::events, counted until the application takes them; what it sends beyond that, out
// of order, or beyond the limits of a message, ends the session. What was delivered before a path died comes again on
// the next one and is dropped here.
// Owns the bytes of a message that is not whole yet. No time, no input or output. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/protocol/path_messages.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

class Inbound {
 public:
  struct Limits {
    std::size_t events = 0;           // EngineConfig::max_pending_events
    std::uint64_t message_bytes = 0;  // EngineConfig::max_message_bytes
  };
  enum class Verdict : std::uint8_t {
    kEvent,      // `event` is to be delivered
    kKept,       // a part of a message that is not whole yet
    kDuplicate,  // delivered before
    kWrong       // the peer broke the protocol; `why` says how
  };

  explicit Inbound(Limits limits) noexcept : limits_(limits) {}

  /// Takes a notify or fragment. `waiting`: events of this peer that the application has not taken yet.
  [[nodiscard]] Verdict take(const PathMessage& message, std::size_t waiting, Event& event, std::string& why);
  /// The last sequence that was taken; what a fence tells the peer.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

  /// What was told may not have arrived: the path is another, or turned the message away.
  void forget_told() noexcept { told_ = 0; }
  /// The sequence to tell the peer as consumed, if that is worth a message now: a quarter of the credits came free.
  /// told() when the path took the message.
  [[nodiscard]] std::optional<std::uint64_t> credit_due(std::size_t waiting) const noexcept;
  void told(std::uint64_t consumed) noexcept;

 private:
  [[nodiscard]] Verdict take_fragment(const PathMessage& message, Event& event, std::string& why);

  const Limits limits_;
  std::uint64_t received_ = 0;
  std::uint64_t told_ = 0;  // what the peer knows for all we can see
  std::vector<std::byte> assembly_;
  std::uint64_t assembly_have_ = 0;
};

}  // namespace fairlead::datapath
