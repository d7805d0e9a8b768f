// Memory windows: keys for a part of a region, which are given and taken without registering anything.
//
// A window of type 1 is bound by ibv_bind_mw, again and again; binding nothing unbinds it. One of type 2 is bound by a
// work request to the queue pair that executes it (2B), which alone may then use it, until it is invalidated there, by
// the peer (SEND with invalidate), deallocated, or its queue pair is destroyed. Only then may it be bound again.
// Threads: under the domain's lock. Source: IBTA volume 1, 10.6.7 (windows), 10.6.7.2.5 and 11.2.11.2 (checks).
#pragma once

#include <cstdint>

namespace fairlead::soft {

class MrTable;
class Qp;
class QpContext;
struct Mw;
struct SendWqe;

/// Binds wqe.window as the request says. False when the rules forbid it; then nothing has changed.
[[nodiscard]] bool bind_window(Qp& qp, const SendWqe& wqe) noexcept;
/// Ends what the key grants. False unless it is the key of a type 2 window bound to this queue pair.
[[nodiscard]] bool invalidate_window(Qp& qp, std::uint32_t rkey) noexcept;
/// The window grants nothing from here on.
void unbind_window(QpContext& domain, Mw& window) noexcept;
/// The same for all that this queue pair alone may use.
void unbind_windows_of(MrTable& table, std::uint32_t qpn) noexcept;

}  // namespace fairlead::soft
