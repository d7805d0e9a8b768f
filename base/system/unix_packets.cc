#include "base/system/unix_packets.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/system/uncancelled.h"

namespace fairlead {
namespace {

constexpr std::size_t kMaxDescriptors = 4;

}  // namespace

bool send_packet(int socket, std::span<const std::byte> bytes, int descriptor) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent = -1;
  do {
    sent = uncancelled::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<std::size_t> receive_packet(int socket, std::span<std::byte> bytes, UniqueFd& descriptor,
                                          bool* lost) noexcept {
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do {
    got = uncancelled::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return std::nullopt;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {  // the last stays, the others are closed
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptor.reset(fd);
    }
  }
  if (lost != nullptr) *lost = !descriptor && (message.msg_flags & MSG_CTRUNC) != 0;
  return static_cast<std::size_t>(got);
}

bool is_not_woken(int error) noexcept {
  return error != EAGAIN && error != EWOULDBLOCK && error != EPIPE && error != ECONNRESET && error != ENOTCONN;
}

}  // namespace fairlead
