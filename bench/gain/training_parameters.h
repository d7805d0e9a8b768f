// What the blocks of one side say of its transport.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "bench/gain/training.h"

namespace fairlead::bench {

/// The sums of a side's blocks, as many at each rank.
struct SumsOfSide {
  std::uint64_t count = 0;
  std::vector<std::uint64_t> busy_ns;  // of each rank's host meanwhile, by rank: all its processors, with whatever
};

/// `ends`: of all ranks, by rank. Of no quads: no times, and a model without a rate. Threads: a pure function.
[[nodiscard]] TrainingSide side_of(const std::vector<TrainingQuad>& quads,
                                   std::array<TrainingBlock, 2> TrainingQuad::* which, const SumsOfSide& sums,
                                   const std::vector<EndFacts>& ends, const TrainingGainPlan& plan, SideFacts facts);

}  // namespace fairlead::bench
