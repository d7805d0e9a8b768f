// Makes a failing plan smaller while it goes on failing: fewer transfers and troubles, fewer and simpler transports,
// smaller numbers.
//
// Each change shifts what chance does below the plan, so a smaller plan is tried with a few timings before it is given
// up. Greedy, until nothing more can be left out or `budget` runs are spent.
#pragma once

#include <functional>

#include "plan.h"

namespace fairlead::simulation {

struct Shrunk {
  Plan plan;
  std::size_t runs = 0;
};

[[nodiscard]] Shrunk shrink(Plan plan, const std::function<bool(const Plan&)>& fails, std::size_t budget = 5000,
                            unsigned timings = 3);

}  // namespace fairlead::simulation
