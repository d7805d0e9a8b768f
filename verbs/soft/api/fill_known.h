// How a verb answers a caller who says how large he knows a structure to be: older than ours, or newer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace fairlead::soft::api {

/// Fills `size` bytes: with what is there of `all`, and behind its end with zeros.
template <typename Structure>
void fill_known(void* to, std::size_t size, const Structure& all) noexcept {
  const std::size_t known = std::min(size, sizeof(all));
  std::memcpy(to, &all, known);
  std::memset(static_cast<std::byte*>(to) + known, 0, size - known);
}

}  // namespace fairlead::soft::api
