// What a peer says in words and codes, made harmless: clipped, and of the codes that we know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fairlead/status.h"

namespace fairlead::datapath {

inline constexpr std::size_t kMaxPeerText = 1024;

[[nodiscard]] inline std::string clipped(const std::string& text) { return text.substr(0, kMaxPeerText); }

[[nodiscard]] inline Code code_from_wire(std::uint32_t code) noexcept {
  return code <= static_cast<std::uint32_t>(Code::kInternal) ? static_cast<Code>(code) : Code::kInternal;
}

}  // namespace fairlead::datapath
