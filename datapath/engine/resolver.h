// Names to addresses, on threads of its own: the system's resolver blocks for seconds.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fairlead/status.h"

namespace fairlead::datapath {

/// A few names at a time; others wait. Threads: any.
class Resolver {
 public:
  static constexpr std::size_t kMaxThreads = 4;
  static constexpr std::size_t kMaxWaiting = 1024;
  using Done = std::function<void(Result<std::vector<std::string>>)>;

  /// Calls `done` with the numeric addresses, in the system's order of preference and at least one, on another thread;
  /// or with kNotFound and the system's reason. With kResourceExhausted at once, if too many wait, or
  /// there is no thread to be had. After stop(): never.
  void resolve(std::string host, Done done);
  /// Waits for those that are under way; no more begin, and what waits is let go of.
  void stop();

 private:
  struct Question {
    std::string host;
    Done done;
  };
  Status begin_thread();
  void work();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopped_ = false;
  std::deque<Question> waiting_;
  std::size_t idle_ = 0;  // threads without a question
  std::vector<std::thread> threads_;
};

}  // namespace fairlead::datapath
