// Payload that did not come with its packet: it lies where the sender has it, until who is to have it takes it.
//
// Such a packet stands for as many as its payload has path MTUs, with the PSNs of all, and arrives as one. Owned by its
// port, valid as long as the packet's bytes. Threads: under the domain's lock.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace fairlead::soft {

class PayloadSource {
 public:
  static constexpr std::size_t kMostPlaces = 96;
  /// Copies all of it to these places, in order; the last byte is stored last and with release. False: the packet did
  /// not arrive, and what is at these places is nothing anybody sent.
  [[nodiscard]] virtual bool fetch(std::span<const iovec> to) noexcept = 0;

 protected:
  ~PayloadSource() = default;
};

}  // namespace fairlead::soft
