// Frames of packets: where their bytes are put together.
#include <cstring>

#include "verbs/soft/port/frame/frame_port.h"
#include "verbs/soft/wire/icrc.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::uint32_t kLeastAttached = 512;  // below, a copy costs less than further pieces of a frame
constexpr std::size_t kSmall = 256;            // of a packet
constexpr std::size_t kMostHeaders = 128;      // before it

}  // namespace

// The whole frame in `room`; its size. A small one is put together here, and copied there as a whole: its ICRC is
// computed of what was just written, piece by piece, and to read that out of a ring's slot waits for the slot to come
// from the core that has read it.
std::uint32_t FramePort::build(TxBatch& batch, const TxPacket& packet, std::byte* room) noexcept {
  const Route& route = *packet.route;
  std::byte here[kMostHeaders + kSmall];
  std::byte* const at = packet.size <= kSmall ? here : room;
  std::byte* const bth = put_roce_headers(*packet.route, packet.size, info_.mac, info_.mtu, at);
  if (bth == nullptr || !gather(packet, batch.iovs(packet), bth)) return 0;
  UdpFrame frame{route.source, route.destination, route.source_port, kRoceUdpPort, 0, packet.size};
  frame.version = route.version;
  const std::size_t covered = packet.size - kIcrcBytes;
  store_icrc(bth + covered, icrc(frame, {bth, covered}));  // over the copy, which is in the cache, and cannot change
  const auto size = static_cast<std::uint32_t>(bth + packet.size - at);
  if (at != room) std::memcpy(room, at, size);
  return size;
}

// Headers, padding and ICRC in the room, the payload where it lies: the first and last of the packet's pieces, and
// those between. The size of what is in the room; 0 where the payload must be copied.
std::uint32_t FramePort::build_attached(TxBatch& batch, const TxPacket& packet, std::span<std::byte* const> rooms,
                                        std::size_t room) noexcept {
  if (packet.size < kLeastAttached || packet.iovs < 3) return 0;
  const std::span<const iovec> pieces(batch.iovs(packet), packet.iovs);
  std::byte* const bth = put_roce_headers(*packet.route, packet.size, info_.mac, info_.mtu, rooms[room]);
  if (bth == nullptr) return 0;
  const auto icrc = icrc_of(packet, pieces.data(), 0);
  if (!icrc) return 0;
  const iovec& headers = pieces.front();
  const iovec& trailer = pieces.back();
  std::memcpy(bth, headers.iov_base, headers.iov_len);
  std::byte* const behind = bth + headers.iov_len;
  std::memcpy(behind, trailer.iov_base, trailer.iov_len - kIcrcBytes);
  store_icrc(behind + trailer.iov_len - kIcrcBytes, *icrc);
  const auto head = static_cast<std::uint32_t>(behind - rooms[room]);
  if (!device_->attach(room, head, pieces.subspan(1, pieces.size() - 2))) return 0;
  return head + static_cast<std::uint32_t>(trailer.iov_len);
}

}  // namespace fairlead::soft
