#include "datapath/flow/measurement.h"

#include <algorithm>

namespace fairlead::datapath {

std::uint64_t Measurement::next() const noexcept { return done_ ? 0 : std::min(left_, piece_); }

void Measurement::given(std::uint64_t bytes, Clock::time_point now) noexcept {
  if (left_ == round_) round_begun_ = now;
  left_ -= std::min(left_, bytes);
  all_ += bytes;
  ++under_way_;
}

void Measurement::ended(Clock::time_point now) {
  if (under_way_ == 0 || --under_way_ != 0 || left_ != 0 || done_) return;
  const Clock::duration took = now - round_begun_;
  large_ ? round_ended(took, now) : small_ended(took, now);
  left_ = round_;
}

void Measurement::small_ended(Clock::duration took, Clock::time_point now) {
  small_.push_back(took);
  const bool long_enough = small_.size() >= 2 && now - begun_ >= kMostTime / 2;
  if (small_.size() < kSmallRounds && !long_enough) return;
  const auto middle = small_.begin() + 1 + static_cast<std::ptrdiff_t>((small_.size() - 1) / 2);
  std::nth_element(small_.begin() + 1, middle, small_.end());
  round_trip_ = *middle;
  large_ = true;
  round_ = kFirstRound;
}

/// Of a round's time a round trip is not the bytes'; what the clock does not show is not free, either.
void Measurement::round_ended(Clock::duration took, Clock::time_point now) noexcept {
  const std::chrono::duration<double> carries = std::max({took - round_trip_, took / 8, Clock::duration(1)});
  rate_ = std::max(rate_, static_cast<double>(round_) / carries.count());
  const std::uint64_t larger = std::min(4 * round_, kMostRound);
  if (larger > round_ && took - round_trip_ < kShort && all_ + larger <= kMostBytes) {
    round_ = larger;
  } else {
    ++settled_;
  }
  done_ = settled_ == kLargeRounds || now - begun_ >= kMostTime || all_ + round_ > kMostBytes;
}

}  // namespace fairlead::datapath
