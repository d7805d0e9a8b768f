// Two devices of one host and the memory between them: a ring each way, and a socket that wakes who sleeps and tells
// when the other end is gone.
//
// Whoever made the memory may send at once; until the other end has said that it needs no ICRCs, packets have them.
// What a full ring does not take waits here as a copy, up to a limit. What came before an end hung up is still
// received. Errors: a link that cannot go on is down; what it had taken and not delivered is lost, as on any network.
// Threads: one at a time. A child of fork() must not use it (Segment::is_mine).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/private_fd.h"
#include "base/system/shared_memory.h"
#include "fairlead/status.h"
#include "verbs/soft/port/local/meeting.h"
#include "verbs/soft/port/local/ring.h"
#include "verbs/soft/port/tx_batch.h"

namespace fairlead::soft::local {

/// What both ends map.
struct Segment {
  enum Wish : std::uint32_t { kUnknown, kNoIcrc, kIcrc };
  struct Side {
    alignas(kLine) std::atomic<std::uint32_t> wish;  // of packets that it receives
    Ring ring;                                       // that it fills
  };
  std::array<Side, 2> sides;  // of the end that made it, and the other
};

class Link {
 public:
  /// Makes the memory and greets `party`'s socket as `self`. Errors: kUnavailable (nobody is there),
  /// kResourceExhausted.
  static Result<std::unique_ptr<Link>> dial(const std::string& name, const Party& party, const Party& self,
                                            bool checks);
  /// Over what a greeting brought. Errors: the memory is none of ours.
  static Result<std::unique_ptr<Link>> accept(PrivateFd socket, const Party& party, const UniqueFd& memory,
                                              bool checks);

  [[nodiscard]] const Party& party() const noexcept { return party_; }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// Whether packets may leave by it.
  [[nodiscard]] bool up() const noexcept { return up_; }
  /// The other end has mapped the memory.
  [[nodiscard]] bool answered() const noexcept { return wish_->load(std::memory_order_acquire) != Segment::kUnknown; }
  void give_up() noexcept { up_ = false; }

  /// Takes the packet, to deliver it or to keep it waiting. False: it is lost.
  bool send(const TxPacket& packet, const iovec* iovs) noexcept;
  /// After a burst of them: lets the other end know if it sleeps.
  void flush() noexcept;
  [[nodiscard]] bool has_backlog() const noexcept { return !backlog_.empty(); }
  /// How long to leave a full ring alone: longer each time that it was still full.
  [[nodiscard]] Nanos look_again_in() const noexcept { return look_again_in_; }

  /// Fills at most packets.size(). They stay until release().
  std::size_t receive(std::span<RxPacket> packets) noexcept;
  void release() noexcept { consumer_.release(); }
  [[nodiscard]] bool ready() const noexcept { return consumer_.ready(); }
  void sleep() noexcept { consumer_.sleep(); }
  void wake() noexcept { consumer_.wake(); }
  Nanos since = 0;  // when its owner was first seen to have it; 0: not yet
  /// Reads the socket. False: the other end is gone, and nothing more will be received than what is there.
  [[nodiscard]] bool listen() noexcept;

 private:
  static constexpr std::size_t kMostBacklog = 512;
  static constexpr Nanos kLookAgain = 50 * kMicrosecond, kLookLatest = 10 * kMillisecond;
  struct Waiting {
    Route route;
    std::uint8_t flags = 0;
    std::vector<std::byte> bytes;
  };

  Link(PrivateFd socket, const Party& party, SharedMapping memory, unsigned side, bool checks) noexcept;
  [[nodiscard]] Segment& segment() const noexcept { return *reinterpret_cast<Segment*>(memory_.get()); }
  bool keep(const TxPacket& packet, const iovec* iovs, std::uint8_t flags) noexcept;
  void send_backlog() noexcept;
  [[nodiscard]] std::uint8_t prepare(const TxPacket& packet, const iovec* iovs) noexcept;

  PrivateFd socket_;
  Party party_;
  SharedMapping memory_;
  const std::atomic<std::uint32_t>* wish_;  // the other end's
  Producer producer_;
  Consumer consumer_;
  const bool checks_;
  std::deque<Waiting> backlog_;
  bool up_ = true;
  bool pushed_ = false;  // since the last flush
  Nanos look_again_in_ = kLookAgain;
};

}  // namespace fairlead::soft::local
