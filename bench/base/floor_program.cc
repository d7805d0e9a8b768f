#include "bench/base/floor_program.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fairlead::bench {

void die(std::string_view what) {
  fmt::print(stderr, "{}: {}: {}\n", ::program_invocation_short_name, what, std::strerror(errno));
  std::exit(1);
}

void die(const Status& error) {
  fmt::print(stderr, "{}: {}\n", ::program_invocation_short_name, error.to_string());
  std::exit(1);
}

unsigned number_argument(const char* text, unsigned most) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0' || value == 0 || value > most) {
    fmt::print(stderr, "{}: '{}' must be 1..{}\n", ::program_invocation_short_name, text, most);
    std::exit(2);
  }
  return value;
}

double time_of(double seconds, const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::chrono::duration<double> took{};
  std::uint64_t count = 0;
  do {
    step();
    ++count;
    took = Clock::now() - begin;
  } while (took.count() < seconds);
  return took.count() / static_cast<double>(count);
}

}  // namespace fairlead::bench
