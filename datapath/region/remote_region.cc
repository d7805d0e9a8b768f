#include "datapath/region/remote_region.h"

#include <fmt/format.h>

namespace fairlead::datapath {

std::string refusal_of(std::string_view owner, const RemoteRegionImpl& region) {
  return fmt::format("{} refused access to region '{}': it was withdrawn, or its memory is gone; look it up again",
                     owner, region.name);
}

}  // namespace fairlead::datapath
