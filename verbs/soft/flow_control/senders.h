// Who sends to us just now, so that each may be told its share of our receive buffer.
//
// A sender is a process at an address (peer.h). It counts from its first packet in a span of time to the end of the
// next one. Threads: under the domain's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/clock.h"

namespace fairlead::soft {

struct Sender {
  std::uint64_t span = 0;  // in which it was heard last
};

class Senders {
 public:
  /// It sent payload.
  void heard(Sender& sender, Nanos now) noexcept {
    if (now >= end_) next_span(now);
    if (std::exchange(sender.span, span_) != span_) ++count_;
  }
  /// At least one.
  [[nodiscard]] std::size_t count() const noexcept { return std::max<std::size_t>({1, count_, count_before_}); }

 private:
  static constexpr Nanos kSpan = 50 * kMillisecond;

  void next_span(Nanos now) noexcept {
    count_before_ = now < end_ + kSpan ? count_ : 0;
    count_ = 0;
    ++span_;
    end_ = now + kSpan;
  }

  std::uint64_t span_ = 0;
  Nanos end_ = 0;
  std::size_t count_ = 0;
  std::size_t count_before_ = 0;
};

}  // namespace fairlead::soft
