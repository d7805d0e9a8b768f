#include "bench/matrix/tournament.h"

namespace fairlead::bench {

std::vector<std::vector<Pair>> tournament(std::size_t ranks) {
  if (ranks < 2) return {};
  const std::size_t seats = ranks + ranks % 2;  // against the one beyond an odd number nobody plays
  const std::size_t round_table = seats - 1;
  std::vector<std::vector<Pair>> turns;
  for (std::size_t round = 0; round < round_table; ++round) {
    std::vector<Pair> there, back;
    const auto meet = [&](std::size_t one, std::size_t other) {
      if (one >= ranks || other >= ranks) return;
      there.push_back({one, other});
      back.push_back({other, one});
    };
    meet(round, seats - 1);
    for (std::size_t step = 1; step < seats / 2; ++step) {
      meet((round + step) % round_table, (round + round_table - step) % round_table);
    }
    turns.push_back(std::move(there));
    turns.push_back(std::move(back));
  }
  return turns;
}

}  // namespace fairlead::bench
