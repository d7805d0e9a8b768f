#include "datapath/region/remote_region.h"

#include <fmt/format.h>

namespace fairlead::datapath {

std::string gone_because(std::string_view owner, const RemoteRegionImpl& region) {
  if (region.gone.load(std::memory_order_relaxed) == RemoteRegionImpl::Gone::kWithdrawn) {
    return fmt::format("{} withdrew region '{}'; look it up again", owner, region.name);
  }
  return fmt::format("{} refused access to region '{}': it was withdrawn, or its memory is gone; look it up again",
                     owner, region.name);
}

}  // namespace fairlead::datapath
