// How often each event came to a path in each state, and which pairs honest ends bring about.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "datapath/session/path_state.h"

namespace fairlead::simulation {

struct Pairs {
  std::array<std::array<std::uint64_t, datapath::kPathEvents>, datapath::kPathStates> paths{};

  bool operator==(const Pairs&) const = default;
  Pairs& operator+=(const Pairs& other) {
    for (std::size_t state = 0; state < paths.size(); ++state) {
      for (std::size_t event = 0; event < paths[state].size(); ++event) {
        paths[state][event] += other.paths[state][event];
      }
    }
    return *this;
  }
};

/// As a table.
[[nodiscard]] std::string to_text(const Pairs& pairs);

/// What `pairs` has not seen though it can be, and what it has seen though it cannot: a line each. `end`: 0 active, 1
/// passive.
[[nodiscard]] std::string surprises(const Pairs& pairs, std::size_t end);

}  // namespace fairlead::simulation
