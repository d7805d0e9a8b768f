#include "fairlead/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/printable.h"
#include "base/system/no_cancellation.h"

namespace fairlead::inline v0 {
namespace {

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

LogLevel level_from_environment() noexcept {
  const char* text = std::getenv("FAIRLEAD_LOG");
  if (text == nullptr) return LogLevel::kWarning;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == text) return static_cast<LogLevel>(i);
  }
  const NoCancellation whole;
  std::fprintf(stderr, "fairlead: FAIRLEAD_LOG=%s is not debug, info, warning, error or off; using warning\n", text);
  return LogLevel::kWarning;
}

// One fwrite per line, so that lines of several threads do not mix.
void write_to_stderr(LogLevel level, std::string_view line) {
  std::string text("fairlead: ");
  text.append(kNames[static_cast<std::size_t>(level)]).append(": ").append(line).push_back('\n');
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::atomic<LogSink> g_sink{&write_to_stderr};

std::atomic<LogLevel>& threshold() noexcept {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

}  // namespace

void set_log_sink(LogSink sink) noexcept { g_sink.store(sink != nullptr ? sink : &write_to_stderr); }

void set_log_level(LogLevel level) noexcept { threshold().store(level); }

bool log_enabled(LogLevel level) noexcept { return level >= threshold().load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view line) noexcept {
  if (!log_enabled(level) || level == LogLevel::kOff) return;
  const NoCancellation whole;
  if (is_printable(line)) return g_sink.load()(level, line);
  g_sink.load()(level, printable(line));
}

}  // namespace fairlead::inline v0
