#include "verbs/soft/port/group_names.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace fairlead::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostSockets = 253;  // SCM_MAX_FD
constexpr timeval kPatience{2, 0};
constexpr auto kLockPatience = 10s;

ucred peer_of(int connection) noexcept {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.uid = ~uid_t{0};
  return peer;
}

void be_patient(int fd) noexcept {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
}

// A message of one byte, with room for descriptors.
struct Message {
  Message() noexcept {
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  char byte = 0;
  iovec iov{&byte, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostSockets * sizeof(int))> control{};
  msghdr header{};
};

}  // namespace

GroupNames::GroupNames(const std::string& address)
    : prefix_(fmt::format("fairlead-roce/{}/{}/", ::getuid(), address)) {}

UniqueFd GroupNames::open(const std::string& name, int type, bool connects) const noexcept {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  be_patient(fd.get());
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  const std::string whole = prefix_ + name;
  whole.copy(where.sun_path + 1, sizeof(where.sun_path) - 1);  // a leading zero: abstract
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + whole.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&where);
  const int result = connects ? ::connect(fd.get(), at, size) : ::bind(fd.get(), at, size);
  return result == 0 ? std::move(fd) : UniqueFd();
}

Result<UniqueFd> GroupNames::lock() const {
  const auto end = std::chrono::steady_clock::now() + kLockPatience;
  do {
    if (UniqueFd held = open("join", SOCK_DGRAM, false)) return held;
    if (errno != EADDRINUSE) break;
    std::this_thread::sleep_for(1ms);
  } while (std::chrono::steady_clock::now() < end);
  return {Code::kUnavailable, fmt::format("cannot take the Unix socket name @{}join: {}; another process of this user "
                                          "seems to hang while it opens its device",
                                          prefix_, std::strerror(errno))};
}

UniqueFd GroupNames::connect_to(unsigned place) const noexcept {
  return open(std::to_string(place), SOCK_SEQPACKET, true);
}

UniqueFd GroupNames::listen_as(unsigned place) const noexcept {
  UniqueFd fd = open(std::to_string(place), SOCK_SEQPACKET, false);
  if (fd && ::listen(fd.get(), 64) != 0) fd.reset();
  return fd;
}

Result<std::vector<PrivateFd>> ask_for_sockets(int connection, std::size_t count) {
  const char question = '?';
  Message answer;
  ssize_t got = ::send(connection, &question, 1, MSG_NOSIGNAL);
  if (got == 1) got = ::recvmsg(connection, &answer.header, MSG_CMSG_CLOEXEC);
  const int error = errno;
  std::vector<PrivateFd> sockets;
  for (cmsghdr* at = CMSG_FIRSTHDR(&answer.header); got == 1 && at != nullptr; at = CMSG_NXTHDR(&answer.header, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> fds((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(at), fds.size() * sizeof(int));
    for (const int fd : fds) sockets.emplace_back(UniqueFd(fd));
  }
  if (sockets.size() == count) return sockets;
  const pid_t process = peer_of(connection).pid;
  if (got == 1) {
    return {Code::kResourceExhausted,
            fmt::format("softroce got {} of the {} sockets that process {} shares; raise the limit of open files "
                        "(ulimit -n)",
                        sockets.size(), count, process)};
  }
  if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) {
    return {Code::kDeadlineExceeded,
            fmt::format("process {}, which shares the address, does not answer; continue or end it", process)};
  }
  return {Code::kUnavailable, fmt::format("process {}, which shared the address, ended", process)};
}

void answer_with_sockets(int connection, std::span<const int> sockets) noexcept {
  be_patient(connection);
  char question = 0;
  if (peer_of(connection).uid != ::getuid() || ::recv(connection, &question, 1, 0) != 1) return;
  Message answer;
  cmsghdr* control = CMSG_FIRSTHDR(&answer.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sockets.size_bytes());
  std::memcpy(CMSG_DATA(control), sockets.data(), sockets.size_bytes());
  answer.header.msg_controllen = CMSG_SPACE(sockets.size_bytes());
  ::sendmsg(connection, &answer.header, MSG_NOSIGNAL);
}

}  // namespace fairlead::soft
