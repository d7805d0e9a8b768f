#include "cli/base/log_options.h"

#include <array>

#include "cli/base/console.h"

namespace fairlead::cli {

void add_log_options(Args& args) {
  args.option("--log-format", "F",
              "text, or json: an object a line, with time (UTC), level, process and message (default text)",
              [](std::string_view text) {
                std::string word;
                const Status status = set_choice(&word, {"text", "json"})(text);
                if (status.ok()) set_log_format(word == "json" ? LogFormat::kJson : LogFormat::kText);
                return status;
              });
  args.option("--log-level", "L",
              "The least that is logged: debug, info, warning, error or off (default info, and warning for what the "
              "library says)",
              [](std::string_view text) {
                constexpr std::array kNames{"debug", "info", "warning", "error", "off"};
                std::string word;
                const Status status = set_choice(&word, {kNames.begin(), kNames.end()})(text);
                for (std::size_t i = 0; status.ok() && i < kNames.size(); ++i) {
                  if (word == kNames[i]) set_log_levels(static_cast<LogLevel>(i));
                }
                return status;
              });
}

}  // namespace fairlead::cli
