#include "verbs/soft/port/udp/udp_receiver.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/system/uncancelled.h"

namespace fairlead::soft {

UdpReceiver::UdpReceiver(int socket) : socket_(socket), coalescing_(socket) { prepare(kMessages); }

std::size_t UdpReceiver::receive(std::span<RxPacket> packets) noexcept {
  // Handed-out packets lie in the buffers until the next call, so a new receive waits until all were handed out.
  if (index_ >= count_ && !refill()) return 0;
  std::size_t count = 0;
  while (count < packets.size() && index_ < count_) packets[count++] = next();
  return count;
}

// The system changes only the headers of messages that it delivers.
void UdpReceiver::prepare(std::size_t used) noexcept {
  for (std::size_t i = 0; i < used; ++i) {
    iovs_[i] = {buffers_.get() + i * kBufferBytes, kBufferBytes};
    sources_[i] = {};
    messages_[i].msg_hdr = {sources_[i].get(),  sources_[i].size(), &iovs_[i], 1,
                            control_[i].data(), control_[i].size(), 0};
  }
}

bool UdpReceiver::refill() noexcept {
  prepare(std::exchange(count_, 0));
  // Looking for a second message where there is none costs a message to and fro a tenth of its time.
  const unsigned wanted = more_ ? kMessages : 1;
  const int got = uncancelled::recvmmsg(socket_, messages_.data(), wanted, MSG_DONTWAIT);
  count_ = got > 0 ? static_cast<std::size_t>(got) : 0;
  more_ = count_ == wanted;
  index_ = 0;
  if (count_ == 0) {
    coalescing_.on_silence();
    return false;
  }
  open_message();
  return true;
}

void UdpReceiver::open_message() noexcept {
  offset_ = 0;
  segment_number_ = 0;
  segment_ = messages_[index_].msg_len;
  traffic_class_ = 0;
  bool segments = false;
  msghdr& header = messages_[index_].msg_hdr;
  for (cmsghdr* at = CMSG_FIRSTHDR(&header); at != nullptr; at = CMSG_NXTHDR(&header, at)) {
    if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) std::memcpy(&traffic_class_, CMSG_DATA(at), 1);
    if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS) {
      int value = 0;
      std::memcpy(&value, CMSG_DATA(at), sizeof(value));
      traffic_class_ = static_cast<std::uint8_t>(value);
    }
    if (at->cmsg_level != SOL_UDP || at->cmsg_type != UDP_GRO) continue;
    int size = 0;
    std::memcpy(&size, CMSG_DATA(at), sizeof(size));
    if (size > 0) segment_ = static_cast<std::size_t>(size);
    segments = size > 0;
  }
  coalescing_.on_datagram(messages_[index_].msg_len, segments);
}

RxPacket UdpReceiver::next() noexcept {
  const std::size_t left = messages_[index_].msg_len - offset_;
  const std::size_t length = std::min(segment_, left);
  const SocketAddress& source = sources_[index_];
  const RxPacket packet{{buffers_.get() + index_ * kBufferBytes + offset_, length},
                        source.gid(),
                        source.port(),
                        segment_number_++,
                        traffic_class_};
  offset_ += length;
  if (offset_ >= messages_[index_].msg_len) {
    ++index_;
    if (index_ < count_) open_message();
  }
  return packet;
}

}  // namespace fairlead::soft
