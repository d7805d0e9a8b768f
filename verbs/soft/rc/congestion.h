// Congestion control at work: marks that come in, notifications, and the rate at which packets may leave.
//
// Threads: under the domain's lock. Source: IBTA annex A17.9 (congestion notification); Zhu et al., SIGCOMM 2015
// (DCQCN).
#pragma once

#include <cstddef>

namespace fairlead::soft {

class Qp;

/// A packet of the peer with payload was marked on its way: tells the peer, unless it was told just now.
void on_congestion_mark(Qp& qp) noexcept;
/// The peer says that our packets were marked.
void on_congestion_notification(Qp& qp) noexcept;
/// Whether the queue pair's rate lets a packet leave now; if not, the queue pair becomes ready when it does.
[[nodiscard]] bool may_send_now(Qp& qp) noexcept;
/// Whether the port can do with more than it has; if not, the queue pair becomes ready in a while.
[[nodiscard]] bool port_has_room(Qp& qp) noexcept;
/// A packet of so many bytes, BTH to ICRC, was handed to the port.
void count_sent(Qp& qp, std::size_t bytes) noexcept;
/// The same of what is in the frame of another.
void count_joined(Qp& qp, std::size_t bytes) noexcept;

}  // namespace fairlead::soft
