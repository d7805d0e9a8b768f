#include "datapath/command/client/flusher.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace fairlead::datapath::command {

namespace {
constexpr std::chrono::microseconds kSlowest{640};
constexpr std::chrono::milliseconds kStopLook{10};  // how often a sleeping thread looks whether it is to stop
constexpr int kLooksAtNone = 16;                    // without anything in a buffer, until the thread sleeps
}  // namespace

bool Flusher::start(std::chrono::microseconds after, Look look) {
  after_ = after;
  look_ = std::move(look);
  try {
    thread_ = std::thread([this] { thread_main(); });
  } catch (const std::system_error&) {
    return false;
  }
  ::pthread_setname_np(thread_.native_handle(), "fairlead-flush");
  return true;
}

void Flusher::stop() noexcept {
  if (!thread_.joinable()) return;
  if (inherited()) return thread_.detach();  // the parent's
  state_.store(kStopping);
  state_.notify_one();
  thread_.join();
}

void Flusher::wake() noexcept {
  std::uint32_t asleep = kAsleep;
  if (state_.compare_exchange_strong(asleep, kLooking)) state_.notify_one();
}

void Flusher::thread_main() noexcept {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns
  while (state_.load() != kStopping) {
    state_.wait(kAsleep);
    look_on();
  }
}

void Flusher::sleep(Clock::duration pause) const noexcept {
  for (; pause > kStopLook && state_.load() != kStopping; pause -= kStopLook) std::this_thread::sleep_for(kStopLook);
  if (state_.load() != kStopping) std::this_thread::sleep_for(std::min<Clock::duration>(pause, kStopLook));
}

void Flusher::look_on() noexcept {
  const Clock::duration slowest = std::max<Clock::duration>(after_, kSlowest);
  Clock::duration pause = after_;
  for (int at_none = 0; state_.load() == kLooking;) {
    sleep(pause);
    if (state_.load() == kStopping) return;
    const Looked looked = look_();
    pause = looked.was_due ? after_ : std::min(pause * 2, slowest);
    if (looked.was_due && looked.soonest) {
      pause = std::clamp<Clock::duration>(*looked.soonest, Clock::duration(1), after_);
    }
    at_none = looked.was_due || looked.soonest ? 0 : at_none + 1;
    if (at_none < kLooksAtNone) continue;
    std::uint32_t looking = kLooking;
    if (!state_.compare_exchange_strong(looking, kAsleep)) return;
    // Who put something into a buffer before that may have seen a thread that looks.
    if (!look_().soonest) return;
    wake();
  }
}

}  // namespace fairlead::datapath::command
