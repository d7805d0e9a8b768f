// Does something now and then, on a thread of its own, until it goes.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace fairlead::memreg {

/// Its destructor waits for a round that is under way. Not to be destroyed in a forked child, where the thread is not.
class Keeper {
 public:
  Keeper(std::chrono::milliseconds every, std::function<void()> round)
      : every_(every), round_(std::move(round)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) {
    sigset_t all;  // the application's signals are for its own threads
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    ::pthread_setname_np(::pthread_self(), "fairlead-pool");
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait_for(lock, stop, every_, [] { return false; });
      if (stop.stop_requested()) return;
      round_();
    }
  }

  const std::chrono::milliseconds every_;
  const std::function<void()> round_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // the last: all else is there before it runs
};

}  // namespace fairlead::memreg
