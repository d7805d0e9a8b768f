#include "verbs/soft/flow_control/control.h"

#include <fmt/format.h>

#include <fstream>

namespace fairlead::soft {

Result<CongestionMode> parse_congestion_mode(std::string_view text) {
  if (text == "auto") return CongestionMode::kAuto;
  if (text == "off") return CongestionMode::kOff;
  if (text == "dcqcn") return CongestionMode::kDcqcn;
  return {Code::kInvalidArgument,
          fmt::format("softroce congestion control '{}' is unknown; legal: auto, dcqcn, off", text)};
}

std::optional<DcqcnConfig> choose_congestion(CongestionMode mode, const InterfaceAddress& address) {
  if (mode == CongestionMode::kOff || (mode == CongestionMode::kAuto && address.loopback)) return std::nullopt;
  DcqcnConfig config;
  double megabits = 0;  // negative where the driver does not know
  std::ifstream("/sys/class/net/" + address.interface + "/speed") >> megabits;
  if (megabits > 0) config.line_rate = megabits * 1e6;
  return config;
}

}  // namespace fairlead::soft
