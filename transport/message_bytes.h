// The bytes of a message, from where they lie to where a path keeps them.
#pragma once

#include <cstring>
#include <span>

#include "base/guarded.h"
#include "transport/path.h"

namespace fairlead::datapath {

/// Copies them one segment behind the other, and returns their end. Segments may be the application's and gone, unless
/// they are the session's (kOwnBytes): unmapped, or their file cut short. Zeros stand for that, and whoever posted the
/// message asks what became of it (readable()).
inline std::byte* copy_message(std::byte* to, std::span<const LocalSegment> segments) noexcept {
  for (const LocalSegment& each : segments) {
    if (each.length != 0) {
      if (each.key == kOwnBytes) {
        std::memcpy(to, each.data, each.length);
      } else if (!guarded_copy(to, each.data, each.length, each.data)) {
        std::memset(to, 0, each.length);
      }
    }
    to += each.length;
  }
  return to;
}

}  // namespace fairlead::datapath
