#include "verbs/soft/observe/refuse.h"

#include <utility>

namespace fairlead::soft {
namespace {

thread_local std::string last_refusal;

}  // namespace

void note_refusal(LogLevel level, std::string_view what) {
  last_refusal = what;
  log(level, fmt::format("softroce: {}", what));
}

std::string take_refusal() { return std::exchange(last_refusal, {}); }

}  // namespace fairlead::soft
