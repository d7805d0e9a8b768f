#include "cli/measure/cores_option.h"

#include <fmt/format.h>

#include "bench/base/cores.h"

namespace fairlead::cli {

std::string complete(CoresOption& option, bool local, EngineConfig& config) {
  if (option.text.empty()) return "";
  const std::vector<unsigned> usable = bench::own_cores();
  const std::string_view text = option.text;
  const std::size_t colon = text.find(':');
  if (colon != std::string_view::npos && !local) {
    return fmt::format("--cores '{}': two lists are for --local; give the other end a --cores of its own", text);
  }
  Result<std::vector<unsigned>> own = bench::parse_cores(text.substr(0, colon), usable);
  Result<std::vector<unsigned>> target =
      colon == std::string_view::npos ? own : bench::parse_cores(text.substr(colon + 1), usable);
  for (const auto* each : {&own, &target}) {
    if (!*each) return fmt::format("--cores '{}': {}", text, each->error().message());
  }
  option.own = *std::move(own);
  option.target = *std::move(target);
  if (config.placement == "auto") config.placement = "off";
  return "";
}

}  // namespace fairlead::cli
