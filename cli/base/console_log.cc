#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "cli/base/console.h"
#include "fairlead/log.h"

namespace fairlead::cli {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_color_mt("fairlead");
    made->set_level(spdlog::level::trace);  // fairlead::log has filtered already
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$: %v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

void write_line(LogLevel level, std::string_view line) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err, spdlog::level::off};
  logger().log(kLevels[static_cast<std::size_t>(level)], line);
}

}  // namespace

void install_console_log() {
  static_cast<void>(logger());  // made here: not while several threads log their first line
  set_log_sink(&write_line);
}

}  // namespace fairlead::cli
