// Publications <-> the control protocol's Region messages.
#pragma once

#include <memory>

#include "datapath/control.pb.h"
#include "datapath/regions.h"
#include "datapath/transfer_impl.h"

namespace fairlead::datapath {

void encode_region(const Publication& publication, control::Region& region);

/// Null if anything in it is not what a region can be. `session`: who said it.
std::shared_ptr<RemoteRegionImpl> decode_region(const control::Region& region, std::uint64_t session);

}  // namespace fairlead::datapath
