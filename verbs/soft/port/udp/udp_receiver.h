// Takes datagrams from a socket, several with one system call, and cuts coalesced ones (UDP_GRO) into packets again.
//
// Threads: those of the port that has it.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/port/udp/coalescing.h"
#include "verbs/soft/port/udp/udp_socket.h"

namespace fairlead::soft {

class UdpReceiver {
 public:
  /// Over a socket that stays its owner's, with UDP_GRO switched on.
  explicit UdpReceiver(int socket);

  /// Packets, as many as there are and find room; valid until the next call.
  [[nodiscard]] std::size_t receive(std::span<RxPacket> packets) noexcept;

 private:
  static constexpr std::size_t kMessages = 4;
  static constexpr std::size_t kBufferBytes = 64 << 10;                      // the largest datagram, coalesced or not
  static constexpr std::size_t kControlBytes = 2 * CMSG_SPACE(sizeof(int));  // GRO, traffic class

  void prepare(std::size_t used) noexcept;
  [[nodiscard]] bool refill() noexcept;
  void open_message() noexcept;
  [[nodiscard]] RxPacket next() noexcept;

  const int socket_;
  std::array<mmsghdr, kMessages> messages_{};
  std::array<iovec, kMessages> iovs_{};
  std::array<SocketAddress, kMessages> sources_{};
  alignas(cmsghdr) std::array<std::array<std::byte, kControlBytes>, kMessages> control_{};
  std::unique_ptr<std::byte[]> buffers_{new std::byte[kMessages * kBufferBytes]};
  bool more_ = false;  // the last call found as many messages as it asked for
  Coalescing coalescing_;
  // What was received and not yet handed out.
  std::size_t count_ = 0;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
  std::size_t segment_ = 0;
  std::uint16_t segment_number_ = 0;
  std::uint8_t traffic_class_ = 0;
};

}  // namespace fairlead::soft
