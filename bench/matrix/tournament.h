// Who measures against whom, and when: every rank against every other, as in a tournament.
// Threads: a pure function.
#pragma once

#include <cstddef>
#include <vector>

namespace fairlead::bench {

/// `from` is the active end.
struct Pair {
  std::size_t from = 0, to = 0;
  [[nodiscard]] bool operator==(const Pair&) const = default;
};

/// Turns, of which each has pairs that share no rank, so that no link carries two of them. Every ordered pair is in
/// one. With an even number of ranks all are busy in each turn, with an odd one all but one. (The circle method: one
/// rank stays, the others go round; each round twice, the second time with the ends changed.)
[[nodiscard]] std::vector<std::vector<Pair>> tournament(std::size_t ranks);

}  // namespace fairlead::bench
