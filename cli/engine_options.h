// The flags that say how an engine reaches its peers: the same names for every subcommand, and in the environment.
#pragma once

#include "cli/args.h"
#include "fairlead/config.h"

namespace fairlead::cli {

/// Adds --transport, --packet-io, --soft-profile and the other settings of verbs, tcp and timeouts. `config` must
/// outlive args.parse(); its values at this moment are the defaults.
void add_engine_options(Args& args, EngineConfig* config);

}  // namespace fairlead::cli
