// Congestion control of one queue pair, and what chooses it.
//
// Threads: under the domain's lock.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "fairlead/status.h"
#include "verbs/soft/congestion/dcqcn.h"
#include "verbs/soft/port/interfaces.h"

namespace fairlead::soft {

class Qp;

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

/// A packet of the peer with payload was marked on its way: tells the peer, unless it was told just now.
void on_congestion_mark(Qp& qp) noexcept;
/// The peer says that our packets were marked.
void on_congestion_notification(Qp& qp) noexcept;
/// Whether the queue pair's rate lets a packet leave now; if not, the queue pair becomes ready when it does.
[[nodiscard]] bool may_send_now(Qp& qp) noexcept;
/// A packet of so many bytes, BTH to ICRC, was handed to the port.
void count_sent(Qp& qp, std::size_t bytes) noexcept;

}  // namespace fairlead::soft
