// Publications <-> the control protocol's Region messages.
#pragma once

#include <memory>

#include "datapath/protocol/control.pb.h"
#include "datapath/region/regions.h"
#include "datapath/region/remote_region.h"

namespace fairlead::datapath {

void encode_region(const Publication& publication, control::Region& region);

/// Null if anything in it is not what a region can be. `session`: who said it.
std::shared_ptr<RemoteRegionImpl> decode_region(const control::Region& region, std::uint64_t session);

}  // namespace fairlead::datapath
