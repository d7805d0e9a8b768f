#include "cli/base/ticker.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::cli {

using std::chrono::steady_clock;

Ticker::Ticker(Console& console, std::string what, double seconds)
    : console_(console), what_(std::move(what)), seconds_(seconds) {
  if (!console_.shows_bars() || seconds < kLeast) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Ticker::~Ticker() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
  console_.clear_bar();
}

void Ticker::run(const std::stop_token& stop) {
  const auto begin = steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const double gone = std::chrono::duration<double>(steady_clock::now() - begin).count();
    console_.bar(gone / seconds_, fmt::format("{}: {:.0f} of {:.0f} s", what_, std::min(gone, seconds_), seconds_));
    changed_.wait_for(lock, stop, std::chrono::milliseconds(250), [] { return false; });
  }
}

}  // namespace fairlead::cli
