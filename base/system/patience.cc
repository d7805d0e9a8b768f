#include "base/system/patience.h"

#include <sys/timerfd.h>

namespace fairlead {

Patience::Patience(std::chrono::nanoseconds length)
    : length_(length), timer_(UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))) {}

void Patience::begin() noexcept {
  put_off();
  slept_on_.store(true, std::memory_order_relaxed);
}

void Patience::put_off() noexcept {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(length_);
  itimerspec when{};
  when.it_value = {static_cast<time_t>(seconds.count()), static_cast<long>((length_ - seconds).count())};
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

}  // namespace fairlead
