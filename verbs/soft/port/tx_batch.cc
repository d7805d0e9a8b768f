#include "verbs/soft/port/tx_batch.h"

#include <algorithm>

#include "datapath/base/crc.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {

std::uint32_t icrc_of(const TxPacket& packet, const iovec* iovs, std::uint16_t ipv4_id) noexcept {
  const UdpFrame frame{
      packet.route->source, packet.route->destination, packet.route->source_port, kRoceUdpPort, ipv4_id, packet.size};
  const auto* first = static_cast<const std::byte*>(iovs[0].iov_base);
  std::uint32_t crc = icrc_start(frame, first);
  std::size_t left = packet.size - kIcrcBytes - Bth::kBytes;
  std::size_t skip = Bth::kBytes;
  for (std::size_t i = 0; i < packet.iovs && left > 0; ++i) {
    const std::size_t length = std::min(iovs[i].iov_len - skip, left);
    crc = crc32({static_cast<const std::byte*>(iovs[i].iov_base) + skip, length}, crc);
    left -= length;
    skip = 0;
  }
  return crc;
}

}  // namespace fairlead::soft
