// A number that nobody knows before. Threads: any.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace fairlead {

inline std::uint64_t random64() noexcept {
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

}  // namespace fairlead
