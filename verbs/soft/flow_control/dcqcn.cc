#include "verbs/soft/flow_control/dcqcn.h"

#include <cmath>

namespace fairlead::soft {
namespace {

// What was not sent in time may be made up for, but no more than this: whoever drives the device is not always there.
constexpr Nanos kMostLag = 100 * kMicrosecond;
constexpr double kBurstBits = 8 * 16384;

constexpr Nanos nanos(double time) noexcept { return static_cast<Nanos>(time * 1e9); }

}  // namespace

void ReactionPoint::on_notification(Nanos now) noexcept {
  advance(now);
  if (!limited_) {
    limited_ = true;
    next_send_ = now;
  }
  target_ = rate_;
  rate_ = std::max(config_.least_rate, rate_ * (1 - alpha_ / 2));
  alpha_ = (1 - config_.gain) * alpha_ + config_.gain;
  alpha_at_ = now + config_.alpha_interval;
  increase_at_ = now + config_.increase_interval;
  time_steps_ = byte_steps_ = 0;
  bytes_ = 0;
}

void ReactionPoint::increase() noexcept {
  const std::uint32_t fewer = std::min(time_steps_, byte_steps_);
  const std::uint32_t more = std::max(time_steps_, byte_steps_);
  if (fewer > config_.recovery_steps) {
    target_ += config_.hyper_increase * (fewer - config_.recovery_steps);
  } else if (more > config_.recovery_steps) {
    target_ += config_.additive_increase;
  }
  target_ = std::min(target_, config_.line_rate);
  rate_ = (rate_ + target_) / 2;
  // Half way to the line rate again and again never arrives.
  if (rate_ < config_.line_rate * 0.999) return;
  rate_ = target_ = config_.line_rate;
  limited_ = false;
}

void ReactionPoint::advance(Nanos now) noexcept {
  if (!limited_) return;
  if (alpha_at_ <= now) {
    const Nanos steps = (now - alpha_at_) / config_.alpha_interval + 1;
    alpha_ *= std::pow(1 - config_.gain, static_cast<double>(steps));
    alpha_at_ += steps * config_.alpha_interval;
  }
  for (; increase_at_ <= now && limited_; increase_at_ += config_.increase_interval) {
    ++time_steps_;
    increase();
  }
}

void ReactionPoint::on_sent(std::uint64_t bytes, Nanos now) noexcept {
  if (!limited_) return;
  const Nanos lag = std::max(kMostLag, nanos(kBurstBits / rate_));
  next_send_ = std::max(next_send_, now - std::min(now, lag)) + nanos(static_cast<double>(bytes) * 8 / rate_);
  bytes_ += bytes;
  for (; bytes_ >= config_.increase_bytes; bytes_ -= config_.increase_bytes) {
    ++byte_steps_;
    increase();
  }
}

}  // namespace fairlead::soft
