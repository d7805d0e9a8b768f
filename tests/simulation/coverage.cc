#include "coverage.h"

#include <fmt/format.h>

#include <string_view>

namespace fairlead::simulation {

using datapath::PathEvent;
using datapath::PathState;

namespace {

constexpr std::string_view kSeen[2][datapath::kPathStates] = {
    {"           ", " xxxxxx    ", "   xxxx    ", "    xx    x", "         x ", "    x   x  "},
    {"x   x  x   ", "  xxxxxx   ", "   xxxx    ", "     x x  x", "x   x  x x ", "           "}};

}  // namespace

std::string to_text(const Pairs& pairs) {
  std::string text = fmt::format("{:12}", "");
  for (std::size_t event = 0; event < datapath::kPathEvents; ++event) {
    text += fmt::format(" {:>10}", to_string(static_cast<PathEvent>(event)));
  }
  for (std::size_t state = 0; state < datapath::kPathStates; ++state) {
    text += fmt::format("\n{:12}", to_string(static_cast<PathState>(state)));
    for (const std::uint64_t count : pairs.paths[state]) text += fmt::format(" {:>10}", count);
  }
  return text + "\n";
}

std::string surprises(const Pairs& pairs, std::size_t end) {
  std::string text;
  for (std::size_t state = 0; state < datapath::kPathStates; ++state) {
    for (std::size_t event = 0; event < datapath::kPathEvents; ++event) {
      if (kSeen[end][state][event] != 'x' || pairs.paths[state][event] != 0) continue;
      text += fmt::format("{}, {}: never seen\n", to_string(static_cast<PathState>(state)),
                          to_string(static_cast<PathEvent>(event)));
    }
  }
  return text;
}

}  // namespace fairlead::simulation
