// The ranks of a group as processes of this host.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bench/collective/group.h"
#include "bench/net/local_target.h"
#include "fairlead/config.h"

namespace fairlead::bench {

/// Ranks 1 and up; this process is to be rank 0. They end when rank 0 goes. It forks: make it before any thread.
class LocalRanks {
 public:
  /// What a rank does in its group; false: in vain.
  using Job = std::function<bool(Group&)>;
  /// Errors: kInvalidArgument (no rank at all), those of LocalTarget::start.
  static Result<LocalRanks> start(const EngineConfig& config, std::size_t ranks, const Job& job);

  /// Where ranks 1, 2, ... listen: for Group::lead.
  [[nodiscard]] const std::vector<std::string>& others() const noexcept { return addresses_; }

 private:
  std::vector<LocalTarget> processes_;
  std::vector<std::string> addresses_;
};

}  // namespace fairlead::bench
