#include "shm/meeting/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/system/no_descriptor.h"
#include "base/system/own_user.h"
#include "base/system/unix_packets.h"

namespace fairlead::shm {
namespace {

constexpr int kBacklog = 128;
#ifndef SO_PEERPIDFD
constexpr int kPeerPidfd = 77;  // since Linux 6.5
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return {Code::kInvalidArgument, fmt::format("the name of the socket {} has {} bytes, and the system takes {}; name "
                                                "a shorter directory by shm.directory",
                                                path, path.size(), sizeof address.sun_path - 1)};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return address;
}

constexpr std::string_view kConnect = "connect to";

PrivateFd new_socket() {
  return PrivateFd(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

Status failure(const std::string& path, std::string_view doing, int error) {
  switch (error) {
    case ENOENT:
      if (doing != kConnect) break;
      [[fallthrough]];
    case ECONNREFUSED:
      return {Code::kNotFound, fmt::format("nobody is at {}: the peer has ended", path)};
    case EAGAIN:
      return {Code::kUnavailable, fmt::format("too many wait at {} to be accepted", path)};
    case EMFILE:
    case ENFILE:
      return no_descriptor(fmt::format("the socket {}", path), error);
    case EACCES:
    case EPERM:
    case ENOTDIR:
      return {Code::kPermissionDenied, fmt::format("cannot {} {}: {}", doing, path, std::strerror(error))};
    case ENOSPC:
    case EROFS:
      return {Code::kResourceExhausted, fmt::format("cannot {} {}: {}; name another directory by shm.directory", doing,
                                                    path, std::strerror(error))};
    default:
      break;
  }
  return {Code::kResourceExhausted, fmt::format("cannot {} {}: {}", doing, path, std::strerror(error))};
}

}  // namespace

Result<PeerProcess> peer_process(int socket) {
  const ucred who = peer_of(socket);
  if (!is_own_user(who.uid)) {
    return {Code::kPermissionDenied,
            fmt::format("process {} of uid {} cannot share memory with uid {}", who.pid, who.uid, ::geteuid())};
  }
  PeerProcess process{.id = who.pid, .life = {}};
  int life = -1;
  socklen_t size = sizeof life;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &life, &size) != 0) {
    // Of whoever has the id now: that it is the one that said so is shown later (Greeting::own).
    life = who.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0)) : -1;
  }
  process.life = PrivateFd(UniqueFd(life));
  return process;
}

void empty(int socket) noexcept {
  ::shutdown(socket, SHUT_RD);  // nothing more comes
  std::array<std::byte, 1> byte;
  for (UniqueFd descriptor;; descriptor.reset()) {
    const auto got = receive_packet(socket, byte, descriptor);
    if (!got || (*got == 0 && !descriptor)) return;
  }
}

std::string socket_path(const std::string& directory, std::uint64_t number) {
  return fmt::format("{}/shm-{:016x}", directory, number);
}

Result<PrivateFd> dial(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return address.error();
  PrivateFd socket = new_socket();
  if (!socket) return failure(path, "open a socket for", errno);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0) return socket;
  return failure(path, kConnect, errno);
}

Result<PrivateFd> listen_at(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return address.error();
  PrivateFd socket = new_socket();
  if (!socket) return failure(path, "open a socket for", errno);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0 &&
      ::listen(socket.get(), kBacklog) == 0) {
    return socket;
  }
  return failure(path, "listen at", errno);
}

}  // namespace fairlead::shm
