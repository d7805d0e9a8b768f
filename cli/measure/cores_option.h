// --cores: the processors of a measurement's ends.
#pragma once

#include <string>
#include <vector>

#include "cli/base/args.h"
#include "fairlead/config.h"

namespace fairlead::cli {

struct CoresOption {
  std::string text;                             // "0-3", or with --local "0-1:2-3"
  std::vector<unsigned> own = {}, target = {};  // empty: where it runs already
};

/// For a rule (Args::rule): what is wrong with the text, or nothing; `options` is complete then. An engine's lanes stay
/// within the cores: EngineConfig::placement that was "auto" becomes "off".
[[nodiscard]] std::string complete(CoresOption& option, bool local, EngineConfig& config);

}  // namespace fairlead::cli
