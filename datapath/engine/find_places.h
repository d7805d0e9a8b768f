// From the places of a peer as they are written to numeric ones.
//
// Threads: any; `done` is called by the calling thread where nothing has to be asked for, else by one of the
// resolver's.
#pragma once

#include <functional>
#include <vector>

#include "datapath/engine/resolver.h"
#include "datapath/session/places.h"
#include "fairlead/config.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

/// Calls `done` once all names are resolved: with the addresses of those that could be, in the order of `named` and at
/// least one, or with what is wrong with the first. After the resolver's stop(): perhaps never.
void find_places(const std::vector<HostPort>& named, Resolver& resolver,
                 std::function<void(Result<std::vector<Place>>)> done);

}  // namespace fairlead::datapath
