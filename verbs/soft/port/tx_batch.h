// Packets under construction for one port: headers are copied in, payload is referred to where it lies.
//
// A packet is built by begin(), payload(), finish(), in this order. Its bytes are a run of consecutive iovecs, the
// last of which ends with room for the ICRC, which the port fills in, because it alone knows the IP header.
// Payload must stay valid and unchanged until the port has sent the batch. Fixed size, no allocation.
// Threads: none of its own; under its domain's lock.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/guarded.h"
#include "verbs/soft/wire/gid.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft {

class References;
class UrgentWay;

/// Where a queue pair's packets go. Made by its port, owned by the queue pair.
struct Route {
  Gid source;
  Gid destination;
  std::uint16_t source_port = kRoceUdpPort;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;  // 0: the system's default
  int socket = -1;             // the port's own handle
  bool connected = false;      // the handle knows the destination
  bool urgent = false;         // its packets pass those of others, where there is a way for that
  // What the handle sends with by itself; a packet that is to have another says so, which costs it a route lookup.
  std::uint8_t socket_traffic_class = 0;
  std::uint8_t socket_hop_limit = 0;
  RoceVersion version = RoceVersion::kV2;
  std::uint16_t error = 0;       // errno, where it cannot be told which way: nothing may be sent
  std::uint32_t flow_label = 0;  // of RoCE v1's GRH
  std::uint16_t peer_port = 0;   // that the destination's packets must come from; 0: any. Of this host alone
  // The local port's note of which address of this host it leads to, made when a packet first needs it; < 0: none.
  mutable std::int16_t host = -1;
  References* references = nullptr;  // the port's, where packets may refer to payload
  UrgentWay* apart = nullptr;        // the port's, where there may be one to the destination
};

struct TxPacket {
  const Route* route = nullptr;
  std::uint16_t first_iov = 0;
  std::uint16_t iovs = 0;
  std::uint32_t size = 0;     // BTH to ICRC
  std::byte* icrc = nullptr;  // 4 bytes, the last of the packet
  bool lent = false;          // payload that is referred to may be sent from where it lies
  bool refers = false;        // it stays there (references.h): the one iovec between headers and trailer
  std::uint8_t messages = 0;  // small ones, in a row, behind which another may be put (rc/bundling.h); 0: none
};

class TxBatch {
 public:
  static constexpr std::size_t kMaxPackets = 64;
  static constexpr std::size_t kMaxIovs = 512;
  /// Payload up to this many bytes is copied behind the headers: one iovec, and the ICRC sees what is sent.
  static constexpr std::size_t kCopyBytes = 192;

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  /// Whether a packet with this many payload pieces fits.
  [[nodiscard]] bool has_room(std::size_t pieces) const noexcept {
    return count_ < kMaxPackets && iov_count_ + pieces + 2 <= kMaxIovs && next_ + kPacketBytes <= kBytes;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// Of all packets that were finished since clear().
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const TxPacket& packet(std::size_t index) const noexcept { return packets_[index]; }
  [[nodiscard]] iovec* iovs(const TxPacket& packet) noexcept { return &iovs_[packet.first_iov]; }
  void clear() noexcept { count_ = iov_count_ = bytes_ = next_ = 0; }

  /// By the port that sent: more packets wait for the system now than should.
  void report_full(bool full) noexcept { full_ = full; }
  /// Whether they did when it was asked last; from then on it is unknown.
  [[nodiscard]] bool take_full() noexcept { return std::exchange(full_, false); }

  /// Drops the packets for which `keep` answers false.
  template <typename Keep>
  void keep_if(Keep&& keep) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      if (keep(packets_[i])) packets_[kept++] = packets_[i];
    }
    count_ = kept;
  }

  /// Room for the headers of a new packet. The route must outlive the batch's sending.
  std::byte* begin(const Route& route, std::size_t header_bytes, std::size_t payload_bytes) noexcept {
    assert(count_ < kMaxPackets && header_bytes <= kHeaderBytes);
    TxPacket& packet = packets_[count_];
    packet = {};
    packet.route = &route;
    packet.first_iov = static_cast<std::uint16_t>(iov_count_);
    packet.size = static_cast<std::uint32_t>(header_bytes);
    copying_ = payload_bytes <= kCopyBytes;
    fill_ = &buffer_[next_];
    std::byte* header = fill_;
    add_iov(fill_, header_bytes);
    fill_ += header_bytes;
    return header;
  }

  /// False when the memory is gone; the packet must be abandoned then. (If it goes later, the packet is lost.)
  bool payload(const std::byte* bytes, std::size_t length) noexcept {
    if (length == 0) return true;
    TxPacket& packet = packets_[count_];
    packet.size += static_cast<std::uint32_t>(length);
    if (copying_) {
      if (!guarded_copy(fill_, bytes, length, bytes)) return false;
      fill_ += length;
      iovs_[packet.first_iov].iov_len += length;
    } else {
      if (!readable(bytes, length)) return false;
      add_iov(const_cast<std::byte*>(bytes), length);
    }
    return true;
  }

  /// Instead of payload(): the packet is to refer to it, as its route allows. All of it lies in one piece.
  void refer(const std::byte* bytes, std::size_t length) noexcept {
    TxPacket& packet = packets_[count_];
    packet.size += static_cast<std::uint32_t>(length);
    packet.refers = true;
    add_iov(const_cast<std::byte*>(bytes), length);
  }

  /// The memory behind the payload stays as it is until the port's loans() that this packet may make have ended.
  void lend() noexcept { packets_[count_].lent = true; }

  /// Adds padding and the place of the ICRC.
  void finish(std::size_t pad) noexcept {
    TxPacket& packet = packets_[count_];
    const std::size_t trailer = pad + kIcrcBytes;
    std::memset(fill_, 0, trailer);
    if (iov_count_ == packet.first_iov + 1U) {
      iovs_[packet.first_iov].iov_len += trailer;
    } else {
      add_iov(fill_, trailer);
    }
    packet.size += static_cast<std::uint32_t>(trailer);
    packet.icrc = fill_ + pad;
    packet.iovs = static_cast<std::uint16_t>(iov_count_ - packet.first_iov);
    bytes_ += packet.size;
    ++count_;
    end_at(fill_ + trailer);
  }

  /// The last packet, if it is for this route and all its bytes are the batch's own; else null.
  [[nodiscard]] TxPacket* last_to(const Route& route) noexcept {
    if (count_ == 0) return nullptr;
    TxPacket& last = packets_[count_ - 1];
    return last.route == &route && last.iovs == 1 ? &last : nullptr;
  }
  /// Whether there is room for so many bytes more where its ICRC's place is, which moves behind them.
  [[nodiscard]] bool may_grow(std::size_t bytes) const noexcept { return next_ + bytes + kAlignment <= kBytes; }
  /// They are there.
  void grow_last(std::size_t bytes) noexcept {
    TxPacket& last = packets_[count_ - 1];
    last.size += static_cast<std::uint32_t>(bytes);
    last.icrc += bytes;
    iovs_[last.first_iov].iov_len += bytes;
    bytes_ += bytes;
    std::memset(last.icrc, 0, kIcrcBytes);
    end_at(last.icrc + kIcrcBytes);
  }
  /// It is a message behind which another may be put.
  void open_last() noexcept { packets_[count_ - 1].messages = 1; }

  /// Forgets a packet that was begun and not finished.
  void abandon() noexcept { iov_count_ = packets_[count_].first_iov; }

 private:
  static constexpr std::size_t kHeaderBytes = 48, kAlignment = 8;
  static constexpr std::size_t kPacketBytes = kHeaderBytes + kCopyBytes + 8;
  static constexpr std::size_t kBytes = kMaxPackets * kPacketBytes;
  static_assert(kPacketBytes % kAlignment == 0);

  void end_at(const std::byte* end) noexcept {
    next_ = (static_cast<std::size_t>(end - buffer_.data()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  void add_iov(std::byte* bytes, std::size_t length) noexcept { iovs_[iov_count_++] = {bytes, length}; }

  std::size_t count_ = 0;
  std::size_t iov_count_ = 0;
  std::size_t bytes_ = 0;
  std::size_t next_ = 0;  // in buffer_, of the next packet's headers
  bool copying_ = false;
  bool full_ = false;
  std::byte* fill_ = nullptr;
  std::array<TxPacket, kMaxPackets> packets_;
  std::array<iovec, kMaxIovs> iovs_;
  std::array<std::byte, kBytes> buffer_;  // what is the batch's own of each packet, one behind the other
};

/// Copies the packet's bytes, packet.size of them. False when payload that it refers to is gone.
[[nodiscard]] bool gather(const TxPacket& packet, const iovec* iovs, std::byte* to) noexcept;

/// The ICRC of a packet of the batch that leaves with this IPv4 id. Nothing when payload is gone.
[[nodiscard]] std::optional<std::uint32_t> icrc_of(const TxPacket& packet, const iovec* iovs,
                                                   std::uint16_t ipv4_id) noexcept;

}  // namespace fairlead::soft
