// EngineConfig and C's structure of the same members.
#pragma once

#include "fairlead/config.h"
#include "fairlead/fairlead.h"

namespace fairlead::capi {

/// Its texts are those of `from`, and the two lists.
[[nodiscard]] fairlead_engine_config config_of(const EngineConfig& from, const char* require, const char* forbid);
[[nodiscard]] EngineConfig config_of(const fairlead_engine_config& from);
/// There for good, so that texts may point at it.
[[nodiscard]] const EngineConfig& default_config();

}  // namespace fairlead::capi
