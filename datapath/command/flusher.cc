#include "datapath/command/flusher.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <utility>

namespace fairlead::datapath::command {

bool Flusher::start(std::chrono::microseconds after, Look look) {
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (!timer_.valid()) return false;
  after_ = after;
  look_ = std::move(look);
  thread_ = std::thread([this] { thread_main(); });
  ::pthread_setname_np(thread_.native_handle(), "fairlead-flush");
  return true;
}

void Flusher::stop() noexcept {
  if (!thread_.joinable()) return;
  if (inherited()) return thread_.detach();  // the parent's
  stopping_.store(true);
  set(std::chrono::nanoseconds(1));
  thread_.join();
}

void Flusher::set(Clock::duration after) const noexcept {
  const std::int64_t ns = std::max<std::int64_t>(std::chrono::nanoseconds(after).count(), 0);
  itimerspec when{};
  when.it_value.tv_sec = ns / 1'000'000'000;
  when.it_value.tv_nsec = ns % 1'000'000'000;
  ::timerfd_settime(timer_.get(), 0, &when, nullptr);
}

void Flusher::thread_main() noexcept {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns
  while (!stopping_.load()) {
    std::uint64_t times = 0;
    if (::read(timer_.get(), &times, sizeof times) < 0 && errno != EINTR) return;
    if (stopping_.load()) return;
    // Before looking: what comes from here on arms it anew.
    armed_.store(false);
    const std::optional<Clock::duration> again = look_();
    if (again && !armed_.exchange(true)) set(std::max(*again, Clock::duration(1)));
  }
}

}  // namespace fairlead::datapath::command
