#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "bench/base/json.h"
#include "cli/base/console.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

constexpr const char* kTextPattern = "%Y-%m-%d %H:%M:%S.%e %^%l%$: %v";
constexpr const char* kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","process":%P,"message":%v})";

// Set before there are other threads, and not after.
LogFormat g_format = LogFormat::kText;
LogLevel g_own_least = LogLevel::kInfo;

std::shared_ptr<spdlog::logger> prepared(std::shared_ptr<spdlog::logger> made) {
  made->set_level(spdlog::level::trace);  // lines come here filtered
  made->set_pattern(kTextPattern);
  made->flush_on(spdlog::level::trace);
  return made;
}

// Of the library, and of what goes wrong.
spdlog::logger& errors() {
  static const std::shared_ptr<spdlog::logger> instance = prepared(spdlog::stderr_color_mt("fairlead"));
  return *instance;
}

spdlog::logger& lines() {
  static const std::shared_ptr<spdlog::logger> instance = prepared(spdlog::stdout_color_mt("fairlead.lines"));
  return *instance;
}

void write_to(spdlog::logger& logger, LogLevel level, std::string_view line) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  const spdlog::level::level_enum at = kLevels[static_cast<std::size_t>(level)];
  if (g_format == LogFormat::kText) return logger.log(at, line);
  logger.log(at, bench::Json(line).dump());  // the pattern puts the rest around it
}

void write_line(LogLevel level, std::string_view line) { write_to(errors(), level, line); }

}  // namespace

void install_console_log() {
  static_cast<void>(errors());  // made here: not while several threads log their first line
  set_log_sink(&write_line);
}

void set_log_format(LogFormat format) {
  g_format = format;
  for (spdlog::logger* logger : {&errors(), &lines()}) {
    if (format == LogFormat::kText) {
      logger->set_pattern(kTextPattern);
    } else {
      logger->set_pattern(kJsonPattern, spdlog::pattern_time_type::utc);
    }
  }
}

void set_log_levels(LogLevel least) {
  g_own_least = least;
  set_log_level(least);
}

void log_own_line(LogLevel level, std::string_view text) {
  if (level < g_own_least) return;
  write_to(level >= LogLevel::kError ? errors() : lines(), level, text);
}

}  // namespace fairlead::cli
