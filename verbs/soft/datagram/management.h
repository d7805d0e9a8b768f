// QP1 of a domain's ports: management datagrams (MADs) come in and go out, what they say is the handler's business.
//
// A MAD is 256 bytes in an unreliable datagram from queue pair 1 to queue pair 1 with the well-known Q_Key. The P_Key,
// the Q_Key and the ICRC are checked before a handler sees it; what fails is dropped and counted.
// Threads: under the domain's lock.
// Source: IBTA volume 1, 13.5.1 (GMP headers), 9.6.1 (datagram checks).
#pragma once

#include <cstddef>
#include <span>

#include "verbs/soft/port/packet_port.h"

namespace fairlead::soft {

class ProgressContext;
struct PortSlot;

inline constexpr std::uint32_t kManagementQpn = 1;
inline constexpr std::size_t kMadBytes = 256;

class ManagementHandler {
 public:
  virtual void on_mad(const Gid& local, const Gid& remote, std::span<const std::byte, kMadBytes> mad) noexcept = 0;
  /// Called when a deadline that was set may have come; sets the next with ProgressContext::set_deadline.
  virtual void run_timers() noexcept = 0;

 protected:
  ~ManagementHandler() = default;
};

namespace management {

/// Whether these bytes, from the BTH on, are for QP1.
[[nodiscard]] bool addressed(std::span<const std::byte> bytes) noexcept;
void receive(ProgressContext& domain, PortSlot& slot, const RxPacket& raw, ManagementHandler* handler) noexcept;
/// Sends from the port that has this address; false where none does, or finds no way. Lost, as any datagram may be.
bool send(ProgressContext& domain, const Gid& local, const Gid& remote,
          std::span<const std::byte, kMadBytes> mad) noexcept;

}  // namespace management

}  // namespace fairlead::soft
