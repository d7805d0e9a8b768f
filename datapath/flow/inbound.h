// What a peer's sequenced messages become: events, each once, in order, and the credits that go back for them.
//
// A notification is an event by itself; a message may come in fragments, which are put together here. The peer may have
// as many events and bytes of messages under way as Limits says, until the application takes them; what it sends beyond
// that, out of order, or beyond the limits of a message, ends the session. What was delivered before a path died comes
// again on the next one and is dropped here.
// The parts of a message that is not whole yet count as taken while nothing else waits: else one that is larger than
// the credits would never be whole. So the peer makes us hold the bytes of its credits and two messages, at the very
// most. Owns the bytes of a message that is not whole yet. No time, no input or output. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datapath/lane/ring.h"
#include "datapath/protocol/path_messages.h"
#include "fairlead/peer.h"

namespace fairlead::datapath {

class Inbound {
 public:
  struct Limits {
    std::size_t events = 0;           // EngineConfig::max_pending_events
    std::uint64_t bytes = 0;          // EngineConfig::max_pending_bytes
    std::uint64_t message_bytes = 0;  // EngineConfig::max_message_bytes
  };
  enum class Verdict : std::uint8_t {
    kEvent,      // `event` is to be delivered
    kKept,       // a part of a message that is not whole yet
    kOurs,       // an atomic or the outcome of one: the application does not see it
    kDuplicate,  // delivered before
    kWrong       // the peer broke the protocol; `why` says how
  };

  /// How far the application has got: everything up to `sequence`, and how many bytes that was.
  struct Consumed {
    std::uint64_t sequence = 0;
    std::uint64_t bytes = 0;
    bool operator==(const Consumed&) const = default;
  };

  explicit Inbound(Limits limits) noexcept : limits_(limits) {}
  /// Less than the configuration has, for this peer. Before anything came.
  void set_window(std::size_t events, std::uint64_t bytes) noexcept {
    limits_.events = events;
    limits_.bytes = bytes;
  }

  /// Takes what is sequenced. `waiting`: events of kEvent that the application has not taken yet.
  [[nodiscard]] Verdict take(const PathMessage& message, std::size_t waiting, Event& event, std::string& why);
  /// The last sequence that was taken; what a fence tells the peer.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

  /// What was told may not have arrived: the path is another, or turned the message away.
  void forget_told() noexcept { told_ = {}; }
  /// What the application has taken when so many events wait.
  [[nodiscard]] Consumed consumed(std::size_t waiting) noexcept;
  /// The same, if that is worth a message now: a quarter of the credits came free.
  /// told() when the path took the message.
  [[nodiscard]] std::optional<Consumed> credit_due(std::size_t waiting) noexcept;
  void told(const Consumed& consumed) noexcept { told_ = consumed; }

 private:
  [[nodiscard]] Verdict take_fragment(const PathMessage& message, const Consumed& before, Event& event,
                                      std::string& why);

  Limits limits_;
  std::uint64_t received_ = 0;
  Consumed told_;           // what the peer knows for all we can see
  Ring<Consumed> waiting_;  // for each event that waits: what came before its first part
  std::uint64_t received_bytes_ = 0;
  std::vector<std::byte> assembly_;
  MessageType assembly_type_ = MessageType::kFragment;
  std::uint64_t assembly_total_ = 0, assembly_have_ = 0;
  Consumed before_assembly_;
};

}  // namespace fairlead::datapath
