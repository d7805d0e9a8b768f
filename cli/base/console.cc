#include "cli/base/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "bench/base/sizes.h"
#include "cli/base/args.h"

namespace fairlead::cli {

using std::chrono::steady_clock;

namespace {

// A reader that went away must not end what is going on, so nothing here throws.
void put(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace

Console::Console(std::string command, Lines lines)
    : command_(std::move(command)),
      lines_(lines),
      out_(lines == Lines::kAside ? stderr : stdout),
      terminal_(lines != Lines::kNone && lines != Lines::kLogged && ::isatty(::fileno(out_)) != 0) {}

void Console::clear_bar() {
  if (bar_shown_) put(out_, "\r\033[K");
  bar_shown_ = false;
}

void Console::bar(double part, std::string_view text) {
  if (!terminal_) return;
  constexpr std::size_t kWidth = 40;
  const auto filled = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * kWidth);
  put(out_, fmt::format("\r[{}{}] {}\033[K", std::string(filled, '#'), std::string(kWidth - filled, '.'), text));
  bar_shown_ = true;
}

void Console::put_line(LogLevel level, std::string_view text) {
  if (lines_ == Lines::kNone) return;
  if (lines_ == Lines::kLogged) return log_own_line(level, printable(text));
  clear_bar();
  put(out_, printable(text) + "\n");
}

void Console::line(std::string_view text) { put_line(LogLevel::kInfo, text); }

void Console::warning(std::string_view text) { put_line(LogLevel::kWarning, text); }

void Console::error(std::string_view text) {
  if (lines_ == Lines::kLogged) return log_own_line(LogLevel::kError, printable(text));
  clear_bar();
  put(stderr, fmt::format("fairlead {}: error: {}\n", command_, printable(text)));
}

int Console::no_engine(const Status& status) {
  error(status);
  return status.code() == Code::kInvalidArgument ? kUsage : kFailure;
}

Progress::Progress(Console& console, std::uint64_t total_bytes) : console_(console), total_(total_bytes) {}

void Progress::update(std::uint64_t bytes) {
  if (total_ == 0) return;
  const auto now = steady_clock::now();
  const double part = static_cast<double>(bytes) / static_cast<double>(total_);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string rate = bench::format_bytes(seconds > 0 ? static_cast<double>(bytes) / seconds : 0);
  if (console_.shows_bars()) {
    if (now - drawn_ < std::chrono::milliseconds(100)) return;
    drawn_ = now;
    console_.bar(part, fmt::format("{:3.0f} %  {} of {}, {}/s", 100 * part, bench::format_bytes(bytes),
                                   bench::format_bytes(total_), rate));
    return;
  }
  const auto quarter = static_cast<std::uint64_t>(4 * part);
  if (quarter == quarter_) return;
  quarter_ = quarter;
  console_.line(fmt::format("{:.0f} % of {}, {}/s", 100 * part, bench::format_bytes(total_), rate));
}

}  // namespace fairlead::cli
