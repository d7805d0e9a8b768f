// The driver's handles are pointers, the double's are numbers.
#pragma once

#include <cstdint>

namespace fairlead::gpu::testing {

template <typename Handle>
Handle handle_of(std::uint64_t number) {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(number));  // NOLINT(performance-no-int-to-ptr)
}
template <typename Handle>
std::uint64_t number_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

}  // namespace fairlead::gpu::testing
