// DCQCN: rate control by congestion notifications. Both ends of it, as arithmetic over a clock that the caller owns.
//
// Switches mark packets (ECN) when their queue grows. The receiver answers marks with congestion notification packets,
// at most one per interval and queue pair (NotificationPoint). The sender cuts its rate at each and raises it again in
// three phases: fast recovery half way back to the old rate, additive, then hyper increase (ReactionPoint).
// Units: bits per second, nanoseconds, bytes. Threads: none of its own.
// Source: Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, sections 3 and 5 (names and
// values as there).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace fairlead::soft {

struct DcqcnConfig {
  double line_rate = 25e9;
  double least_rate = 10e6;
  double additive_increase = 40e6;           // R_AI
  double hyper_increase = 400e6;             // R_HAI
  double gain = 1.0 / 256;                   // g
  Nanos alpha_interval = 55 * kMicrosecond;  // K
  Nanos increase_interval = 55 * kMicrosecond;
  std::uint64_t increase_bytes = 10'000'000;        // B
  std::uint32_t recovery_steps = 5;                 // F
  Nanos notification_interval = 50 * kMicrosecond;  // N
};

/// The receiver's half: which marks are answered.
class NotificationPoint {
 public:
  /// A marked packet has come. True if a notification is to be sent.
  [[nodiscard]] bool on_mark(const DcqcnConfig& config, Nanos now) noexcept {
    if (last_ != 0 && now - last_ < config.notification_interval) return false;
    last_ = now;
    return true;
  }

 private:
  Nanos last_ = 0;
};

/// The sender's half: how fast a queue pair may send. Unlimited until the first notification, and again once the rate
/// has come back to the line's.
class ReactionPoint {
 public:
  explicit ReactionPoint(const DcqcnConfig& config) noexcept
      : config_(config), rate_(config.line_rate), target_(config.line_rate) {}

  void on_notification(Nanos now) noexcept;
  /// Whether a packet may leave now; if not, at next_send().
  [[nodiscard]] bool may_send(Nanos now) noexcept {
    advance(now);
    return !limited_ || next_send_ <= now;
  }
  void on_sent(std::uint64_t bytes, Nanos now) noexcept;
  [[nodiscard]] Nanos next_send() const noexcept { return next_send_; }

  /// After the time that went by was accounted for.
  void advance(Nanos now) noexcept;
  [[nodiscard]] double rate() const noexcept { return rate_; }
  [[nodiscard]] double alpha() const noexcept { return alpha_; }

 private:
  void increase() noexcept;

  DcqcnConfig config_;
  bool limited_ = false;
  double rate_;    // R_C
  double target_;  // R_T
  double alpha_ = 1;
  Nanos alpha_at_ = 0;            // of the next decay
  Nanos increase_at_ = 0;         // of the next increase by time
  std::uint64_t bytes_ = 0;       // since the last increase by bytes
  std::uint32_t time_steps_ = 0;  // T
  std::uint32_t byte_steps_ = 0;  // BC
  Nanos next_send_ = 0;
};

}  // namespace fairlead::soft
