#include "fairlead/softroce.h"
#include "verbs/soft/device/config.h"
#include "verbs/soft/device/live_devices.h"
#include "verbs/soft/observe/counter_page.h"

namespace fairlead::inline v0 {

std::vector<SoftroceDevice> softroce_devices() { return soft::live_devices(); }

std::string softroce_directory() { return soft::counter_directory(); }

Status SoftroceConfig::validate() const {
  const auto features = soft::parse_profile(profile);
  if (!features) return features.error();
  return soft::validate({.name = name, .profile = *features, .packet_io = packet_io, .address = address});
}

}  // namespace fairlead::inline v0
