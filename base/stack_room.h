// Whether addresses that another process names may be mapped here: not where this process's own stack grows into.
#pragma once

#include <sys/auxv.h>

#include <cstdint>

namespace fairlead {

[[nodiscard]] inline bool is_clear_of_stack(std::uint64_t address, std::uint64_t bytes) noexcept {
  constexpr std::uint64_t kRoom = std::uint64_t{256} << 20;
  const std::uint64_t stack = ::getauxval(AT_RANDOM);  // stands at its beginning
  return stack > kRoom && address <= stack - kRoom && bytes <= stack - kRoom - address;
}

}  // namespace fairlead
