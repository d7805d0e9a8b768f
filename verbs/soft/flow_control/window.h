// How many bytes may be on their way to one socket: a receive buffer is small, and what overflows it is lost.
//
// All queue pairs that send to the socket share the window. It begins at what a Fairlead peer's buffer surely takes,
// may grow to what the peer announces, is halved when packets are lost and grows again as they are acknowledged (as
// TCP's, RFC 5681), never below a floor that keeps go-back-N moving where loss does not mean congestion. Between hosts
// it shrinks to what the way carries without a queue (delay_target.h), and where there is none, and more to send, it
// grows beyond what was announced: a long way holds more than the buffer at its end. A queue pair that times out probes
// with little, which is charged to no window; only when nobody was acknowledged meanwhile is the window small, too.
// Threads: under the domain's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/intrusive_list.h"
#include "verbs/soft/flow_control/delay_target.h"

namespace fairlead::soft {

class Qp;

class Window {
 public:
  explicit Window(std::size_t limit) noexcept : sure_(limit), most_(limit), limit_(limit), threshold_(limit) {}

  /// Takes `bytes`, or answers false. An empty window takes anything, else a packet larger than it would wait forever.
  [[nodiscard]] bool take(std::size_t bytes) noexcept {
    if (!admits(bytes)) return false;
    force(bytes);
    return true;
  }
  [[nodiscard]] bool admits(std::size_t bytes) const noexcept { return used_ == 0 || used_ + bytes <= limit_; }
  /// For how much more there is room.
  [[nodiscard]] std::size_t room() const noexcept { return limit_ - std::min(used_, limit_); }
  /// Takes them, whether there is room or not.
  void force(std::size_t bytes) noexcept {
    if (used_ == 0) limit_ = std::min(limit_, most_);  // nothing paces what begins anew: it is for the buffer to take
    used_ += bytes;
  }
  void give_back(std::size_t bytes) noexcept { used_ -= std::min(bytes, used_); }

  /// What the peer says that it takes, however much that is; 0: it says nothing. A window that nothing was lost of
  /// grows up to it as fast as it is acknowledged.
  void announce(std::size_t bytes) noexcept {
    if (bytes == 0) return;
    bytes = std::clamp(bytes, kProbeBytes, kMostBytes);
    if (bytes == most_) return;
    if (threshold_ == most_ || threshold_ > bytes) threshold_ = bytes;
    if (bytes < most_) limit_ = std::min(limit_, std::max(bytes, limit_ / most_ * bytes));
    most_ = bytes;
  }

  void on_acknowledged(std::size_t bytes) noexcept {
    acknowledged_ += bytes;
    const std::size_t most = beyond_ && has_waiting() ? std::max(most_, kMostBytes) : most_;
    if (limit_ >= most || (limit_ >= threshold_ && !calm_)) return;
    limit_ += limit_ < threshold_ ? bytes : std::max<std::size_t>(1, bytes * growth() / limit_);
    limit_ = std::min(limit_, most);
  }
  /// What a round trip to a peer at another host told of the way.
  void follow(DelayTarget& delay, DelayTarget::Verdict verdict) noexcept {
    timed_ = true;
    calm_ = delay.calm();
    if (verdict == DelayTarget::Verdict::kUnknown) return;
    beyond_ = verdict == DelayTarget::Verdict::kRoom;
    if (beyond_ || limit_ > sure_) rounds_at_least_ = 0;
    if (beyond_) return;
    if (limit_ > sure_) {
      const auto queued = static_cast<std::size_t>(static_cast<double>(limit_) * std::min(delay.excess(), 0.5));
      threshold_ = limit_ = std::max(sure_, limit_ - queued);
    } else if (++rounds_at_least_ >= kRoundsAtLeast) {  // so little makes no queue that is worth the name
      delay.forget();
      rounds_at_least_ = 0;
    }
  }
  void on_loss() noexcept {
    threshold_ = limit_ = std::max(kFloorBytes, limit_ / 2);
    before_timeout_ = 0;
  }
  void on_timeout() noexcept {
    before_timeout_ = std::max(before_timeout_, limit_);
    threshold_ = std::max(kFloorBytes, limit_ / 2);
    limit_ = kProbeBytes;
  }

  /// Nothing had been lost: the peer was merely slow.
  void undo_timeout() noexcept { limit_ = std::max(limit_, std::exchange(before_timeout_, 0)); }

  /// All that ever was: whoever sees it grow knows that the socket's owner takes packets.
  [[nodiscard]] std::uint64_t acknowledged() const noexcept { return acknowledged_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

  /// Puts a queue pair that found no room at the end of the line; the link is Qp::waiting.
  void wait(Link<Qp>& link) noexcept {
    link.unlink();  // it may still be in the line for another window
    waiting_.push_back(link);
    roused.unlink();
  }
  [[nodiscard]] bool has_waiting() const noexcept { return !waiting_.empty(); }
  /// The first in the line, which leaves it; null when there is none.
  [[nodiscard]] Qp* call() noexcept { return waiting_.pop_front(); }

  DelayTarget delay;          // of the peer, if it is one's window
  Link<Window> roused{this};  // has had room since somebody found none

  static constexpr std::size_t kProbeBytes = 8 << 10;
  static constexpr std::size_t kMostBytes = 16 << 20;  // of what is announced

 private:
  static constexpr std::size_t kFloorBytes = 32 << 10;
  static constexpr std::size_t kGrowthBytes = 8 << 10;
  static constexpr std::size_t kGrowthSteps = 24;
  static constexpr std::size_t kTimedGrowthSteps = 12;  // where a queue is seen before it overflows

  static constexpr unsigned kRoundsAtLeast = 64;

  /// Per window acknowledged.
  [[nodiscard]] std::size_t growth() const noexcept {
    return std::max(kGrowthBytes, timed_ ? limit_ / kTimedGrowthSteps : most_ / kGrowthSteps);
  }

  const std::size_t sure_;  // what any peer's buffer takes; delays alone never make it less
  std::size_t most_;
  std::size_t limit_;
  std::size_t threshold_;
  std::size_t used_ = 0;
  std::size_t before_timeout_ = 0;
  std::uint64_t acknowledged_ = 0;
  bool timed_ = false;            // it follows delays
  bool calm_ = true;              // and the last one was within the target
  bool beyond_ = false;           // it may grow further than the peer announces
  unsigned rounds_at_least_ = 0;  // in a row in which little was on its way, and waited all the same
  List<Qp> waiting_;
};

}  // namespace fairlead::soft
