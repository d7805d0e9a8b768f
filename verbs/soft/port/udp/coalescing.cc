#include "verbs/soft/port/udp/coalescing.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include "base/system/no_cancellation.h"

namespace fairlead::soft {
namespace {

bool set_coalescing(int socket, int on) noexcept {
  return ::setsockopt(socket, SOL_UDP, UDP_GRO, &on, sizeof(on)) == 0;
}

}  // namespace

void Coalescing::switch_on() noexcept {
  quiet_ = 0;
  on_ = set_coalescing(socket_, 1);
}

void Coalescing::switch_off() noexcept {
  const NoCancellation whole;
  quiet_ = 0;
  if (!set_coalescing(socket_, 0)) return;
  // What came just before may be coalesced. Switched on again, the system still tells its segment size.
  const bool empty = ::recv(socket_, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT) < 0;
  on_ = !empty && set_coalescing(socket_, 1);
}

}  // namespace fairlead::soft
