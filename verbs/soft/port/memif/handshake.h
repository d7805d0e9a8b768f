// How two ends agree on memory and rings: what each says, when, and what it takes from the other.
//
// No I/O: the owner hands over messages and sends what is answered. The master says hello; the slave, who has made the
// memory, then tells of interface, regions and rings, one message for each acknowledgement, and connects.
// A ring each way, and two where the peer takes exactly two, as our kind does: the second are for what is urgent.
// Others take one or hundreds, and refuse more than they were set up for. Threads: none of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "verbs/soft/port/memif/messages.h"
#include "verbs/soft/port/memif/regions.h"
#include "verbs/soft/port/memif/ring.h"

namespace fairlead::soft::memif {

struct Settings {
  std::uint32_t interface = 0;  // of those at one socket
  std::string secret = {};      // of the master: what the slave must say; empty: anything
  std::string name = {};        // told to the peer
  unsigned log2_slots = 8;      // of the slave: of each ring
  std::uint32_t buffer_bytes = 4352;
};

/// A ring each way.
struct Way {
  void start(const RingPlace& outward, const RingPlace& inward) {
    sender = Sender(outward);
    receiver = Receiver(inward);
    receiver.want_to_be_woken(false);
  }

  Sender sender;
  Receiver receiver;
  UniqueFd wakes_peer;
  UniqueFd wakes_us;
};

/// What both have agreed on: a connection that can carry frames.
struct Wire : Way {
  Regions regions;
  std::optional<Way> urgent;  // for frames that pass the others, where both ends take two rings
};

struct Outgoing {
  Message message;
  int descriptor = -1;  // the handshake's
};

class Handshake {
 public:
  [[nodiscard]] static std::unique_ptr<Handshake> of(Role role, const Settings& settings);
  virtual ~Handshake() = default;
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// What is said unasked, at the beginning.
  [[nodiscard]] virtual std::optional<Outgoing> begin() { return std::nullopt; }
  /// The next message of the peer's, and the descriptor that came along. What it is answered with, if anything.
  /// Errors: kProtocolError, what is wrong with it; kUnavailable, the peer's own reason to leave.
  [[nodiscard]] virtual Result<std::optional<Outgoing>> take(const Message& message, UniqueFd descriptor) = 0;
  /// There once both have agreed. Null before.
  [[nodiscard]] Wire* wire() const noexcept { return agreed_ ? wire_.get() : nullptr; }

 protected:
  explicit Handshake(const Settings& settings) : settings_(settings), wire_(std::make_unique<Wire>()) {}

  const Settings settings_;
  std::unique_ptr<Wire> wire_;
  bool agreed_ = false;
};

}  // namespace fairlead::soft::memif
