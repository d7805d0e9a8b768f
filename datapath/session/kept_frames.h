// The frames that two ends say to each other, whatever becomes of the connections that carry them: each end counts its
// own and the other's, and keeps its own until the other has heard them.
//
// On another connection those that the other end has not heard are said again, piece by piece, and what comes meanwhile
// waits behind them. A frame's number is its place in that count; it is not on the wire. Owns the bytes of what is
// kept. No input or output, no time. Threads: the driver.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace fairlead::datapath {

class KeptFrames {
 public:
  /// So many are heard before the other end is told.
  static constexpr std::uint64_t kTellEvery = 16;

  /// One of ours, as it lies on the wire, which is said now; not while others wait.
  void said(std::string wire) {
    assert(!waiting());
    wait(std::move(wire));
    waiting_bytes_ = 0;
    said_ = ever_said_ = end();
  }
  /// One of ours that is to be said, behind those that wait.
  void wait(std::string wire) {
    bytes_ += cost_of(wire);
    waiting_bytes_ += cost_of(wire);
    kept_.push_back(std::move(wire));
  }
  /// Nothing that is kept was said on this connection: it waits.
  void say_again() noexcept {
    said_ = forgotten_;
    waiting_bytes_ = bytes_;
  }
  [[nodiscard]] bool waiting() const noexcept { return said_ != end(); }
  /// Of bytes(), those of what waits.
  [[nodiscard]] std::size_t waiting_bytes() const noexcept { return waiting_bytes_; }
  /// The next of those that wait, in one piece of `most` bytes if the first has no more; they are said now.
  [[nodiscard]] std::string say(std::size_t most) {
    std::string piece;
    while (waiting()) {
      const std::string& wire = kept_[said_ - forgotten_];
      if (!piece.empty() && piece.size() + wire.size() > most) break;
      piece += wire;
      waiting_bytes_ -= cost_of(wire);
      ever_said_ = std::max(ever_said_, ++said_);
    }
    return piece;
  }
  /// The other end has heard so many of ours, which are kept no longer. False: that cannot be.
  [[nodiscard]] bool heard_there(std::uint64_t count) {
    if (count < forgotten_ || count > ever_said_) return false;
    for (; forgotten_ < count; ++forgotten_) {
      const std::size_t cost = cost_of(kept_.front());
      bytes_ -= cost;
      if (said_ == forgotten_) ++said_, waiting_bytes_ -= cost;
      kept_.pop_front();
    }
    return true;
  }
  [[nodiscard]] const std::deque<std::string>& kept() const noexcept { return kept_; }
  /// That they take here.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// One of the other end's.
  void hear() noexcept { ++heard_; }
  [[nodiscard]] std::uint64_t heard() const noexcept { return heard_; }
  /// Heard since the other end was told.
  [[nodiscard]] std::uint64_t untold() const noexcept { return heard_ - told_; }
  void told() noexcept { told_ = heard_; }

 private:
  [[nodiscard]] std::uint64_t end() const noexcept { return forgotten_ + kept_.size(); }
  [[nodiscard]] static std::size_t cost_of(const std::string& wire) noexcept { return sizeof wire + wire.size(); }

  std::deque<std::string> kept_;
  std::size_t bytes_ = 0, waiting_bytes_ = 0;
  std::uint64_t forgotten_ = 0;  // of ours, before those that are kept
  std::uint64_t said_ = 0;       // of ours, before those that wait
  std::uint64_t ever_said_ = 0;  // the same, on any connection
  std::uint64_t heard_ = 0, told_ = 0;
};

}  // namespace fairlead::datapath
