#include "verbs/soft/observe/refuse.h"

#include <utility>

#include "base/system/no_descriptor.h"
#include "base/system/no_thread.h"

namespace fairlead::soft {
namespace {

thread_local std::string last_refusal;

}  // namespace

void note_refusal(LogLevel level, std::string_view what) {
  last_refusal = what;
  log(level, fmt::format("softroce: {}", what));
}

std::string what_lacks(std::string_view verb, const std::system_error& error) {
  const int number = error.code().value();
  if (is_descriptor_limit(number)) return no_descriptor(verb, number).message();
  if (number == EAGAIN) return no_thread(verb, error).message();  // as std::thread has it
  return fmt::format("{}: {}", verb, error.what());
}

std::string take_refusal() { return std::exchange(last_refusal, {}); }

}  // namespace fairlead::soft
