// One transport's part of `fairlead bench`: its engines, the sessions that are measured over it, and what came of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/net/report.h"
#include "bench/net/sessions.h"
#include "cli/base/console.h"
#include "cli/measure/bench_options.h"
#include "fairlead/engine.h"
#include "fairlead/metrics.h"

namespace fairlead::cli {

struct BenchSide {
  std::vector<std::unique_ptr<Engine>> engines;  // one, or one for each initiator
  std::vector<Metrics> metrics = {};             // of the first of them, if they are served
  std::vector<std::unique_ptr<bench::Link>> links = {};
  std::vector<bench::MeasuredSession> sessions = {};  // of these
  bench::Setting setting = {};
  std::vector<bench::Measured> sizes = {};
};

/// With all sessions that the options ask for, ready. Errors: an engine that could not be made (kInvalidArgument if a
/// setting is bad), a target that cannot be reached.
Result<BenchSide> connect_side(const BenchOptions& options, const std::string& transport, Console& console);

/// Looks whether the hosts of both ends are quiet, for a fifth of a second, and asks all ends what they are; fills that
/// into the settings. What speaks against measuring here or there. Errors: a peer that is no target.
[[nodiscard]] Result<std::vector<std::string>> look_around(std::vector<BenchSide>& sides, bench::Place memory);

}  // namespace fairlead::cli
