// What the small programs share that measure a floor: a ping-pong over sockets, a copy with its CRC.
//
// They say what is wrong on standard error, under the program's own name, and end.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "fairlead/status.h"

namespace fairlead::bench {

/// Ends with exit code 1, naming the call that failed and errno's reason.
[[noreturn]] void die(std::string_view what);
/// The same with an error of ours.
[[noreturn]] void die(const Status& error);
/// Ends so where it is one.
inline void must(const Status& status) {
  if (!status.ok()) die(status);
}
template <typename T>
T must(Result<T> result) {
  if (!result) die(result.error());
  return std::move(*result);
}
/// An argument that must be 1..most; ends with exit code 2 if it is not.
[[nodiscard]] unsigned number_argument(const char* text, unsigned most);
/// How many seconds one of `step` takes, by what can be done in so many.
[[nodiscard]] double time_of(double seconds, const std::function<void()>& step);

}  // namespace fairlead::bench
