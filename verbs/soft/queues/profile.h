// What a device offers.
#pragma once

#include <cstdint>

namespace fairlead::soft {

/// kPvrdma is what VMware's paravirtual device has: RC (and UD), no inline data, no memory windows, no extended QP or
/// CQ, no atomics.
enum class Profile : std::uint8_t { kFull, kPvrdma };

}  // namespace fairlead::soft
