// A way of their own for packets that are urgent (Route): what a port offers where they can pass others that nobody has
// looked at yet. Routes tell of it (Route::apart). Threads: under the domain's lock.
#pragma once

#include <cstddef>
#include <span>

#include "base/clock.h"

namespace fairlead::soft {

struct RxPacket;

class UrgentWay {
 public:
  /// Whether it is there now. Else they go with the others.
  [[nodiscard]] virtual bool open() const noexcept = 0;
  /// PacketPort::rx_burst, of this way alone.
  virtual std::size_t rx_urgent(std::span<RxPacket> packets, Nanos now) noexcept = 0;

 protected:
  ~UrgentWay() = default;
};

}  // namespace fairlead::soft
