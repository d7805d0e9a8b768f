// Two devices of one host and the memory between them: a ring each way, and a socket that wakes who sleeps and tells
// when the other end is gone.
//
// Whoever made the memory may send at once; until the other end has said that it needs no ICRCs, packets have them.
// Each end finds out whether it can read the other's memory, and says so: then packets may refer to payload, which who
// receives copies from where it lies. After a copy that failed it says for a while that they may not.
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
#include "verbs/soft/observe/counters.h"
#include "verbs/soft/port/local/meeting.h"
#include "verbs/soft/port/local/peer_memory.h"
#include "verbs/soft/port/local/ring.h"
#include "verbs/soft/port/tx_batch.h"
#include "verbs/soft/wire/payload_source.h"

namespace fairlead::soft::local {

/// What both ends map.
struct Segment {
  enum Wish : std::uint32_t { kUnknown, kNoIcrc, kIcrc };
  struct Side {
    alignas(kLine) std::atomic<std::uint32_t> wish;  // of packets that it receives
    std::atomic<std::uint32_t> fetches;              // not 0: and they may refer to payload
    Witness witness;                                 // of its process, by which the other end does so
    Ring ring;                                       // that it fills,
    Ring urgent;                                     // and for packets that pass those
  };
  std::array<Side, 2> sides;  // of the end that made it, and the other
};

/// What an end has to do with packets.
struct LinkTerms {
  bool checks = false;  // it needs ICRCs,
  bool refers = false;  // it lets packets refer to payload, which none does that checks
  Counters* counters = nullptr;
};

class Link {
 public:
  /// Makes the memory and greets `party`'s socket as `self`. Errors: kUnavailable (nobody is there),
  /// kResourceExhausted.
  static Result<std::unique_ptr<Link>> dial(const std::string& name, const Party& party, const Party& self,
                                            const LinkTerms& terms);
  /// Over what a greeting brought. Errors: the memory is none of ours.
  static Result<std::unique_ptr<Link>> accept(PrivateFd socket, const Party& party, const UniqueFd& memory,
                                              const LinkTerms& terms);

  [[nodiscard]] const Party& party() const noexcept { return party_; }
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// Whether packets may leave by it.
  [[nodiscard]] bool up() const noexcept { return up_; }
  /// The other end has mapped the memory.
  [[nodiscard]] bool answered() const noexcept { return wish_->load(std::memory_order_acquire) != Segment::kUnknown; }
  void give_up() noexcept;
  /// Packets may refer to payload now.
  [[nodiscard]] bool refers() const noexcept {
    return up_ && terms_.refers && other().fetches.load(std::memory_order_acquire) != 0;
  }
  /// And those that come.
  [[nodiscard]] bool fetches() const noexcept { return own().fetches.load(std::memory_order_relaxed) != 0; }
  /// Now and then: finds out whether payload can be fetched from the other end.
  void look_at_peer(Nanos now) noexcept;
  /// Takes back the references for which `which` answers true (Standing).
  template <typename Which>
  void withdraw(Which&& which) noexcept {
    std::size_t count = 0;
    for (RingPair& way : ways_) {
      count += way.producer.withdraw(which);
      count += std::erase_if(way.backlog, [&which](const Waiting& each) {
        return each.refers.reference.bytes != 0 && which(each.refers);
      });
    }
    if (count != 0 && terms_.counters != nullptr) terms_.counters->references_withdrawn.add(count);
  }

  /// Takes the packet, to deliver it or to keep it waiting. False: it is lost.
  bool send(const TxPacket& packet, const iovec* iovs) noexcept;
  /// After a burst of them: lets the other end know if it sleeps.
  void flush() noexcept;
  [[nodiscard]] bool has_backlog() const noexcept {
    return !ways_[kOthers].backlog.empty() || !ways_[kUrgent].backlog.empty() || owes_wake_;
  }
  /// How long to leave a full ring alone: longer each time that it was still full.
  [[nodiscard]] Nanos look_again_in() const noexcept { return look_again_in_; }

  /// Fills at most packets.size(), fewer where much is to be fetched for them. They stay until release(). The urgent
  /// ones first.
  std::size_t receive(std::span<RxPacket> packets) noexcept;
  /// Those alone.
  std::size_t receive_urgent(std::span<RxPacket> packets) noexcept { return receive_by(ways_[kUrgent], packets); }
  void release() noexcept {
    for (RingPair& way : ways_) way.consumer.release();
    fetches_used_ = 0;
  }
  [[nodiscard]] bool ready() const noexcept {
    return ways_[kOthers].consumer.ready() || ways_[kUrgent].consumer.ready();
  }
  // One ring's word for both.
  void sleep() noexcept { ways_[kOthers].consumer.sleep(); }
  void wake() noexcept { ways_[kOthers].consumer.wake(); }
  Nanos since = 0;  // when its owner was first seen to have it; 0: not yet
  /// Reads the socket. False: the other end is gone, and nothing more will be received than what is there.
  [[nodiscard]] bool listen() noexcept;

 private:
  static constexpr std::size_t kMostBacklog = 512;
  static constexpr Nanos kLookAgain = 50 * kMicrosecond, kLookLatest = 10 * kMillisecond;
  static constexpr std::size_t kMostFetches = 16, kFetchedAtOnce = 256 << 10;
  struct Waiting {
    Route route;
    std::uint8_t flags = 0;
    Standing refers;
    std::vector<std::byte> bytes;
  };
  enum Kind : std::uint8_t { kOthers, kUrgent };
  /// What packets of one kind leave and come by.
  struct RingPair {
    RingPair(Ring& filled, Ring& emptied) noexcept : producer(filled), consumer(emptied) {}
    Producer producer;
    Consumer consumer;
    std::deque<Waiting> backlog = {};
  };
  /// The payload of a packet that was received, while it is looked at.
  struct Fetch final : PayloadSource {
    bool fetch(std::span<const iovec> to) noexcept override { return link->fetch(referred, to); }
    Link* link = nullptr;
    Consumer::Referred referred;
  };

  Link(PrivateFd socket, const Party& party, SharedMapping memory, unsigned side, const LinkTerms& terms) noexcept;
  [[nodiscard]] Segment& segment() const noexcept { return *reinterpret_cast<Segment*>(memory_.get()); }
  [[nodiscard]] Segment::Side& own() const noexcept { return segment().sides[side_]; }
  [[nodiscard]] Segment::Side& other() const noexcept { return segment().sides[1 - side_]; }
  std::size_t receive_by(RingPair& way, std::span<RxPacket> packets) noexcept;
  bool keep(RingPair& way, const TxPacket& packet, const iovec* iovs, std::uint8_t flags) noexcept;
  bool fetch(const Consumer::Referred& referred, std::span<const iovec> to) noexcept;
  void send_backlog(RingPair& way) noexcept;
  [[nodiscard]] std::uint8_t prepare(const TxPacket& packet, const iovec* iovs) noexcept;

  PrivateFd socket_;
  Party party_;
  SharedMapping memory_;
  const unsigned side_;
  const std::atomic<std::uint32_t>* wish_;  // the other end's
  std::array<RingPair, 2> ways_;
  const LinkTerms terms_;
  const std::uint64_t word_;  // what a witness shows
  PeerMemory peer_;
  std::array<Fetch, kMostFetches> fetches_;  // of the packets received since release()
  std::size_t fetches_used_ = 0;
  bool failed_ = false;     // a copy did
  Nanos next_meeting_ = 0;  // with the other end's memory; ~0: it is met, or not to be met
  bool up_ = true;
  bool pushed_ = false;     // since the last flush
  bool owes_wake_ = false;  // the system was short of memory
  Nanos look_again_in_ = kLookAgain;
};

}  // namespace fairlead::soft::local
