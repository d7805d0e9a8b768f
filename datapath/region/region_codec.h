// Publications <-> the Regions of the control protocol.
#pragma once

#include <memory>
#include <span>

#include "datapath/protocol/frames.h"
#include "datapath/region/regions.h"
#include "datapath/region/remote_region.h"

namespace fairlead::datapath {

/// `keys`: those of who is told, by device.
[[nodiscard]] control::Region encode_region(const Publication& publication, std::span<const Grant> keys);

/// Null if anything in it is not what a region can be. `session`: who said it.
std::shared_ptr<RemoteRegionImpl> decode_region(const control::Region& region, std::uint64_t session);

}  // namespace fairlead::datapath
