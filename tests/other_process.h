// A process that shares nothing with the test but what it is sent: it maps a part of a file, compares, and writes.
//
// Make it before there are threads, and before what it is to see. It ends with its owner.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/system/unix_packets.h"

namespace fairlead {

class OtherProcess {
 public:
  OtherProcess() {
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_.data()) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends_[0]);
      ::alarm(60);
      serve();
      ::_exit(0);
    }
    ::close(ends_[1]);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  ~OtherProcess() {
    ::close(ends_[0]);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }

  /// True: all `length` bytes from `offset` on were `expected` in the other process, and it made them `written`.
  [[nodiscard]] bool sees(int fd, std::size_t offset, std::size_t length, std::byte expected, std::byte written) {
    const Request request{.offset = offset, .length = length, .expected = expected, .written = written};
    bool same = false;
    return send_packet(ends_[0], std::as_bytes(std::span(&request, 1)), fd) &&
           ::recv(ends_[0], &same, sizeof same, 0) == static_cast<::ssize_t>(sizeof same) && same;
  }

 private:
  struct Request {
    std::uint64_t offset = 0, length = 0;
    std::byte expected{}, written{};
  };

  void serve() const {
    for (;;) {
      Request request;
      iovec part{&request, sizeof request};
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      if (::recvmsg(ends_[1], &message, 0) != static_cast<::ssize_t>(sizeof request)) return;
      const cmsghdr* const header = CMSG_FIRSTHDR(&message);
      int fd = -1;
      if (header != nullptr) std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      const bool same = exchange(fd, request);
      ::close(fd);
      if (::send(ends_[1], &same, sizeof same, MSG_NOSIGNAL) != static_cast<::ssize_t>(sizeof same)) return;
    }
  }

  static bool exchange(int fd, const Request& request) {
    const std::size_t end = request.offset + request.length;
    void* const mapped = ::mmap(nullptr, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return false;
    const std::span bytes(static_cast<std::byte*>(mapped) + request.offset, request.length);
    const bool same = std::ranges::all_of(bytes, [&request](std::byte each) { return each == request.expected; });
    std::ranges::fill(bytes, request.written);
    ::munmap(mapped, end);
    return same;
  }

  std::array<int, 2> ends_{-1, -1};  // ours, the other's
  pid_t child_ = -1;
};

}  // namespace fairlead
