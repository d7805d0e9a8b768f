// Congestion control of one queue pair: its state, and what chooses it. rc/congestion.h works with it.
//
// Threads: under the domain's lock.
#pragma once

#include <optional>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/soft/flow_control/dcqcn.h"
#include "verbs/soft/port/interfaces.h"

namespace fairlead::soft {

/// kAuto: DCQCN where packets leave the host, none on loopback, where the peer's receive buffer is the bottleneck and
/// nobody marks.
enum class CongestionMode : std::uint8_t { kAuto, kOff, kDcqcn };

/// "auto", "off" or "dcqcn".
[[nodiscard]] Result<CongestionMode> parse_congestion_mode(std::string_view text);
/// What queue pairs behind that address begin with; the line rate is the interface's, where it says so.
[[nodiscard]] std::optional<DcqcnConfig> choose_congestion(CongestionMode mode, const InterfaceAddress& address);

struct CongestionControl {
  explicit CongestionControl(const DcqcnConfig& wanted) noexcept : config(wanted), reaction(wanted) {}
  const DcqcnConfig config;
  NotificationPoint notification;
  ReactionPoint reaction;
};

}  // namespace fairlead::soft
