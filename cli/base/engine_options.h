// The flags that say how an engine reaches its peers: the same names for every subcommand, and in the environment.
#pragma once

#include <string>

#include "cli/base/args.h"
#include "fairlead/config.h"

namespace fairlead::cli {

/// Adds --transport, --packet-io, --soft-profile and the other settings of verbs, tcp and timeouts. `config` must
/// outlive args.parse(); its values at this moment are the defaults.
void add_engine_options(Args& args, EngineConfig* config);

/// What --transport takes.
[[nodiscard]] Setter set_transport(std::string* target);

/// What a peer of push, pull and serve may leave waiting here: no message is longer than the protocol's, and not many.
void set_push_limits(EngineConfig* config);

}  // namespace fairlead::cli
