// The frames that two ends say to each other, whatever becomes of the connections that carry them: each end counts its
// own and the other's, and keeps its own until the other has heard them.
//
// A frame's number is its place in that count; it is not on the wire. Owns the bytes of what is kept. No input or
// output, no time. Threads: the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace fairlead::datapath {

class KeptFrames {
 public:
  /// So many are heard before the other end is told.
  static constexpr std::uint64_t kTellEvery = 16;

  /// One of ours, as it lies on the wire.
  void said(std::string wire) {
    bytes_ += cost_of(wire);
    kept_.push_back(std::move(wire));
  }
  /// The other end has heard so many of ours, which are kept no longer. False: that cannot be.
  [[nodiscard]] bool heard_there(std::uint64_t count) {
    if (count < forgotten_ || count - forgotten_ > kept_.size()) return false;
    for (; forgotten_ < count; ++forgotten_) {
      bytes_ -= cost_of(kept_.front());
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
  [[nodiscard]] static std::size_t cost_of(const std::string& wire) noexcept { return sizeof wire + wire.size(); }

  std::deque<std::string> kept_;
  std::size_t bytes_ = 0;
  std::uint64_t forgotten_ = 0;  // of ours, before those that are kept
  std::uint64_t heard_ = 0, told_ = 0;
};

}  // namespace fairlead::datapath
