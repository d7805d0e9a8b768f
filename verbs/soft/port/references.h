// Packets that refer to payload instead of carrying it (TxBatch::refer): what a port offers where the other end can
// read this process's memory.
//
// A packet of its queue pair's message may so stand for several, with the PSNs of all. What is sent again carries its
// payload, by the same way and behind what referred to it; or that is lost. So an acknowledgement says also that nobody
// looks at the memory any more. Only where a request completes without one, where a queue pair or a window ends over
// which the peer might read, and where memory is given up, there is something to take back: by withdraw(), and
// PacketPort::unmap() and end_loans(). Threads: under the domain's lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairlead::soft {

struct Route;

/// Bytes of a message from which on its packets refer to payload: below, copying twice takes less time.
inline constexpr std::uint32_t kLeastReferred = 16 << 10;

class References {
 public:
  /// How many bytes a packet to queue pair `qpn` may refer to, of a message of so many, now; 0: it is to carry them.
  [[nodiscard]] virtual std::size_t reach(const Route& route, std::uint32_t qpn, std::size_t message) noexcept = 0;
  /// Whether the other way packets of such a message may do so.
  [[nodiscard]] virtual bool fetches(const Route& route, std::uint32_t qpn, std::size_t message) noexcept = 0;
  /// Nobody takes any more what packets of this route refer to. Those that nobody has taken are lost.
  virtual void withdraw(const Route& route) noexcept = 0;
  /// The same of what they refer to in this memory, whosever they are.
  virtual void withdraw(const void* start, std::size_t bytes) noexcept = 0;

 protected:
  ~References() = default;
};

}  // namespace fairlead::soft
