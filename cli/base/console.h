// What a person sees: lines, a progress bar on a terminal, errors. Standard output carries the lines unless it was
// given to JSON; then standard error does. What names of peers and files hold beside what can be seen is shown escaped
// (printable.h). Threads: one at a time, but for the log sink.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "fairlead/log.h"
#include "fairlead/status.h"

namespace fairlead::cli {

/// Sends the library's log lines to standard error through spdlog, with time and level, coloured on a terminal.
void install_console_log();

/// How lines are logged: "2026-11-25 22:30:00.123 info: TEXT", by the local clock, or
/// {"time":"2026-11-25T22:30:00.123Z","level":"info","process":4711,"message":"TEXT"}, one object a line.
enum class LogFormat : std::uint8_t { kText, kJson };
/// For all lines that are logged from here on; before there are other threads.
void set_log_format(LogFormat format);
/// The least level of what a server logs itself (kInfo unless set), and of what the library does (log.h).
void set_log_levels(LogLevel least);

class Console {
 public:
  /// Where lines go. kPlain: to standard output as they stand; kAside: to standard error, as standard output holds a
  /// document; kNone: nowhere; kLogged: to standard output with time and level, errors too, as a server's.
  enum class Lines : std::uint8_t { kPlain, kAside, kNone, kLogged };
  explicit Console(std::string command, Lines lines = Lines::kPlain);
  /// As --quiet says, and a document that goes to standard output.
  [[nodiscard]] static Lines lines_of(bool quiet, bool json_on_stdout) noexcept {
    return quiet ? Lines::kNone : json_on_stdout ? Lines::kAside : Lines::kPlain;
  }
  /// `json_on_stdout`: keep standard output clean.
  Console(std::string command, bool json_on_stdout)
      : Console(std::move(command), json_on_stdout ? Lines::kAside : Lines::kPlain) {}

  /// A line; clears the bar first.
  void line(std::string_view text);
  /// The same, at a level that is not kInfo.
  void warning(std::string_view text);
  /// "fairlead push: error: ..." on standard error.
  void error(std::string_view text);
  void error(const Status& status) { error(status.to_string()); }
  /// Prints why an engine could not be created and gives the exit code: a value that it refuses is wrong usage.
  [[nodiscard]] int no_engine(const Status& status);

  /// Whether bars are seen: lines go to a terminal.
  [[nodiscard]] bool shows_bars() const noexcept { return terminal_; }
  /// "[####....] TEXT" over the bar before it, on a terminal alone; `part` of 1.
  void bar(double part, std::string_view text);
  /// Lines do so by themselves.
  void clear_bar();

 private:
  void put_line(LogLevel level, std::string_view text);

  std::string command_;
  Lines lines_;
  std::FILE* out_;
  bool terminal_;
  bool bar_shown_ = false;
};

/// Logs a line of the program's own, at standard output or standard error. What console.cc calls.
void log_own_line(LogLevel level, std::string_view text);

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
