#include "verbs/soft/port/tx_batch.h"

#include <algorithm>

#include "base/crc.h"
#include "verbs/soft/wire/icrc.h"

namespace fairlead::soft {

bool gather(const TxPacket& packet, const iovec* iovs, std::byte* to) noexcept {
  for (std::size_t i = 0; i < packet.iovs; ++i) {
    const auto* from = static_cast<const std::byte*>(iovs[i].iov_base);
    const bool own = i == 0 || i + 1 == packet.iovs;  // the batch's: headers, trailer
    if (own) {
      std::memcpy(to, from, iovs[i].iov_len);
    } else if (!guarded_copy(to, from, iovs[i].iov_len, from)) {
      return false;
    }
    to += iovs[i].iov_len;
  }
  return true;
}

std::optional<std::uint32_t> icrc_of(const TxPacket& packet, const iovec* iovs, std::uint16_t ipv4_id) noexcept {
  UdpFrame frame{packet.route->source, packet.route->destination, packet.route->source_port, kRoceUdpPort, ipv4_id,
                 packet.size};
  frame.version = packet.route->version;
  const auto* first = static_cast<const std::byte*>(iovs[0].iov_base);
  if (packet.iovs == 1) return icrc(frame, {first, packet.size - kIcrcBytes});
  std::uint32_t crc = icrc_start(frame, first);
  std::size_t left = packet.size - kIcrcBytes - Bth::kBytes;
  std::size_t skip = Bth::kBytes;
  for (std::size_t i = 0; i < packet.iovs && left > 0; ++i) {
    const std::size_t length = std::min(iovs[i].iov_len - skip, left);
    const auto* bytes = static_cast<const std::byte*>(iovs[i].iov_base) + skip;
    const auto proceed = [&crc, bytes, length] { crc = crc32({bytes, length}, crc); };
    const bool payload = i > 0;
    if (!payload) {
      proceed();
    } else if (!attempt(bytes, length, proceed)) {
      return std::nullopt;
    }
    left -= length;
    skip = 0;
  }
  return crc;
}

}  // namespace fairlead::soft
