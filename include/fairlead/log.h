// Where Fairlead's log lines go. The library never writes elsewhere.
//
// An error is logged once, where it is decided. Threads: every function may be called from any thread; the sink is
// called from the thread that logs, possibly from several at once.
#pragma once

#include <cstdint>
#include <string_view>

#include "fairlead/export.h"

namespace fairlead::inline v0 {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// Receives one line without a line feed. Must not call back into Fairlead.
using LogSink = void (*)(LogLevel level, std::string_view line);

/// Replaces the sink; null restores the default (stderr, "fairlead: LEVEL: line").
FAIRLEAD_EXPORT void set_log_sink(LogSink sink) noexcept;

/// Lines below this level are dropped before they are formatted. Default: kWarning, or
/// FAIRLEAD_LOG=debug|info|warning|error|off.
FAIRLEAD_EXPORT void set_log_level(LogLevel level) noexcept;
[[nodiscard]] FAIRLEAD_EXPORT bool log_enabled(LogLevel level) noexcept;

/// Sends one line to the sink.
FAIRLEAD_EXPORT void log(LogLevel level, std::string_view line) noexcept;

}  // namespace fairlead::inline v0
