// A number that nobody knows before. Threads: any.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/system/no_cancellation.h"

namespace fairlead {

inline std::uint64_t random64() noexcept {
  const NoCancellation whole;
  std::uint64_t value = 0;
  while (::getrandom(&value, sizeof(value), 0) != sizeof(value)) {
  }
  return value;
}

}  // namespace fairlead
