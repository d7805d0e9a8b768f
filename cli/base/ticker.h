// How far something is that takes a known time, as a bar that moves by itself: a measurement of some seconds. On a
// terminal alone, and not of what is short: the thread that draws wakes four times a second.
//
// Threads: while it is there nobody else uses the console.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "cli/base/console.h"

namespace fairlead::cli {

class Ticker {
 public:
  static constexpr double kLeast = 3;  // seconds; what is shorter is not shown

  Ticker(Console& console, std::string what, double seconds);
  /// Clears the bar.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  void run(const std::stop_token& stop);

  Console& console_;
  const std::string what_;
  const double seconds_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace fairlead::cli
