// The lanes of a port with several queues: each is a queue with a progress domain of its own behind it, and they share
// nothing but the rings by which they hand frames over.
//
// All lanes have the port's address. A queue pair's number tells its lane: lane n numbers its own from n << 16 on
// (QpTable's partition), and QP1 is lane 0's. Devices of our kind tell the lane that they send to in the lowest bits of
// the UDP source port, by which a NIC can be told to choose the queue. That is a hint only: a frame that arrives at
// another lane's queue is copied to the lane whose it is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "verbs/soft/port/frame/frame_ring.h"

namespace fairlead::soft {

inline constexpr unsigned kMostLanes = 16;
inline constexpr unsigned kLaneBits = 4;  // of a source port
static_assert(1U << kLaneBits == kMostLanes);

[[nodiscard]] constexpr unsigned lane_of(std::uint32_t qpn) noexcept { return qpn >> 16; }
/// The flow, which a source port is made of, toward a queue pair. Peers without lanes see a few bits less of it.
[[nodiscard]] constexpr std::uint32_t flow_toward(std::uint32_t flow, std::uint32_t qpn) noexcept {
  constexpr std::uint32_t kMask = kMostLanes - 1;
  return (flow & ~kMask) | (lane_of(qpn) & kMask);
}

/// One lane's way to the others. Threads: one at a time for each lane.
class Lane {
 public:
  /// The lanes of a port, for frames of at most so many bytes.
  [[nodiscard]] static std::vector<Lane> make(unsigned lanes, std::size_t frame_bytes);

  /// Whether the packets of a queue pair are another lane's. What is of no lane stays where it is.
  [[nodiscard]] bool is_others(std::uint32_t qpn) const noexcept {
    const unsigned owner = lane_of(qpn);
    return owner != number_ && owner < rings_->lanes;
  }
  /// Copies the frame to the lane that has this queue pair. False when it does not keep up; the frame is lost then.
  bool hand_over(std::uint32_t qpn, std::span<const std::byte> frame) noexcept {
    return rings_->between(number_, lane_of(qpn)).push(frame);
  }
  /// Copies the frame to all other lanes; to those that keep up.
  void tell_others(std::span<const std::byte> frame) noexcept;
  /// What other lanes handed over: fills at most frames.size() and returns how many. Valid until the next call.
  [[nodiscard]] std::size_t take(std::span<std::span<const std::byte>> frames) noexcept;

 private:
  struct Rings {
    Rings(unsigned count, std::size_t frame_bytes);
    [[nodiscard]] FrameRing& between(unsigned from, unsigned to) const noexcept { return *ring[from * lanes + to]; }
    const unsigned lanes;
    std::vector<std::unique_ptr<FrameRing>> ring;  // null from a lane to itself
  };

  Lane(std::shared_ptr<Rings> rings, unsigned number) : rings_(std::move(rings)), number_(number) {}

  std::shared_ptr<Rings> rings_;
  unsigned number_;
  unsigned turn_ = 0;  // the lane that is looked at next
  FrameRing* taken_from_ = nullptr;
};

}  // namespace fairlead::soft
