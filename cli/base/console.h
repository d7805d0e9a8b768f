// What a person sees: lines, a progress bar on a terminal, errors. Standard output carries the lines unless it was
// given to JSON; then standard error does. What names of peers and files hold beside what can be seen is shown escaped
// (printable.h). Threads: one, but for the log sink.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::cli {

/// Sends the library's log lines to standard error through spdlog, with time and level, coloured on a terminal.
void install_console_log();

class Console {
 public:
  /// `json_on_stdout`: keep standard output clean.
  explicit Console(std::string command, bool json_on_stdout = false);

  /// A line; clears the bar first.
  void line(std::string_view text);
  /// "fairlead push: error: ..." on standard error.
  void error(std::string_view text);
  void error(const Status& status) { error(status.to_string()); }
  /// Prints why an engine could not be created and gives the exit code: a value that it refuses is wrong usage.
  [[nodiscard]] int no_engine(const Status& status);

 private:
  friend class Progress;
  void clear_bar();

  std::string command_;
  std::FILE* out_;
  bool terminal_;
  bool bar_shown_ = false;
};

/// How far a transfer is. On a terminal a bar, redrawn at most ten times a second; else a line per quarter.
class Progress {
 public:
  Progress(Console& console, std::uint64_t total_bytes);
  void update(std::uint64_t bytes);

 private:
  Console& console_;
  std::uint64_t total_;
  std::uint64_t quarter_ = 0;  // the last that was printed
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace fairlead::cli
