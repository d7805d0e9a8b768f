// How often each event came in each state, of paths and of sessions, and which of these pairs can be.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "datapath/flow/path_state.h"
#include "datapath/session/session_phase.h"

namespace fairlead::simulation {

template <std::size_t States, std::size_t Events>
using PairCounts = std::array<std::array<std::uint64_t, Events>, States>;

struct Pairs {
  PairCounts<datapath::kPathStates, datapath::kPathEvents> paths{};
  PairCounts<datapath::kSessionPhases, datapath::kSessionEvents> sessions{};

  bool operator==(const Pairs&) const = default;
  Pairs& operator+=(const Pairs& other) {
    const auto add = [](auto& sum, const auto& more) {
      for (std::size_t state = 0; state < sum.size(); ++state) {
        for (std::size_t event = 0; event < sum[state].size(); ++event) sum[state][event] += more[state][event];
      }
    };
    add(paths, other.paths);
    add(sessions, other.sessions);
    return *this;
  }
};

/// As tables.
[[nodiscard]] std::string to_text(const Pairs& pairs);

/// A line for each pair that was seen though it cannot be, and, if `all`, for each that was not seen though it is to
/// be. `end`: 0 active, 1 passive.
[[nodiscard]] std::string surprises(const Pairs& pairs, std::size_t end, bool all);

}  // namespace fairlead::simulation
