// What an end has for its peer to write to, and to write from, so that paths can be proved and measured.
#pragma once

#include <cstdint>

namespace fairlead::datapath {

/// Of each of the two: the peer's target, and the source of what goes into the peer's.
inline constexpr std::uint32_t kProbeBytes = 64 * 1024;

}  // namespace fairlead::datapath
