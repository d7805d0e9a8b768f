// System calls that are no cancellation points (no_cancellation.h says why), for where messages pass: past the C
// library, so they cost less than by it. Only for what does not wait. Threads: any. Errors are errno.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <ctime>

namespace fairlead::uncancelled {

inline ssize_t read(int fd, void* to, std::size_t bytes) noexcept { return ::syscall(SYS_read, fd, to, bytes); }
inline ssize_t write(int fd, const void* from, std::size_t bytes) noexcept {
  return ::syscall(SYS_write, fd, from, bytes);
}

inline ssize_t sendto(int socket, const void* from, std::size_t bytes, int flags, const sockaddr* to,
                      socklen_t size) noexcept {
  return ::syscall(SYS_sendto, socket, from, bytes, flags, to, size);
}
inline ssize_t sendmsg(int socket, const msghdr* message, int flags) noexcept {
  return ::syscall(SYS_sendmsg, socket, message, flags);
}
inline int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) noexcept {
  return static_cast<int>(::syscall(SYS_sendmmsg, socket, messages, count, flags));
}

inline ssize_t recvmsg(int socket, msghdr* message, int flags) noexcept {
  return ::syscall(SYS_recvmsg, socket, message, flags);
}
inline int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags) noexcept {
  return static_cast<int>(::syscall(SYS_recvmmsg, socket, messages, count, flags, static_cast<timespec*>(nullptr)));
}

// What is ready at once. By the calls that every processor has.
inline int poll_now(pollfd* fds, std::size_t count) noexcept {
  timespec none{};
  return static_cast<int>(::syscall(SYS_ppoll, fds, count, &none, static_cast<sigset_t*>(nullptr), std::size_t{0}));
}
inline int epoll_wait_now(int epoll, epoll_event* events, int most) noexcept {
  return static_cast<int>(
      ::syscall(SYS_epoll_pwait, epoll, events, most, 0, static_cast<sigset_t*>(nullptr), std::size_t{0}));
}

}  // namespace fairlead::uncancelled
