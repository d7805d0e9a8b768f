// Takes what comes for a session whose application does not wait for it: else one whose peer is lost while the
// application is at something else might be given up by its service before it hears of that.
//
// Threads: start() and stop() by the owner; `look` is called on the keeper's. fork(): the child's copy does nothing.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace fairlead::datapath::command {

class Keeper {
 public:
  static constexpr std::chrono::milliseconds kPause{100};

  Keeper() = default;
  ~Keeper() { stop(); }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// False: there was no thread to be had.
  [[nodiscard]] bool start(std::function<void()> look) {
    try {
      thread_ = std::thread([this, look = std::move(look)] {
        std::unique_lock lock(mutex_);
        while (!stopping_.wait_for(lock, kPause, [this] { return stops_; })) {
          lock.unlock();
          look();
          lock.lock();
        }
      });
    } catch (const std::system_error&) {
      return false;
    }
    ::pthread_setname_np(thread_.native_handle(), "fairlead-keep");
    return true;
  }
  void stop() noexcept {
    if (!thread_.joinable()) return;
    if (::getpid() != owner_) return thread_.detach();  // the parent's
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stopping_.notify_one();
    thread_.join();
  }

 private:
  const pid_t owner_ = ::getpid();
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stops_ = false;  // under mutex_
  std::thread thread_;
};

}  // namespace fairlead::datapath::command
