// A blocking TCP client that says what it likes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "tcp_fallback/frame.h"

namespace fairlead::tcp_fallback {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);  // as a path of ours does
  }

  void send(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void send(const Greeting& greeting) {
    GreetingBytes bytes;
    encode(greeting, bytes);
    send(bytes);
  }
  void send(const Frame& frame) {
    HeaderBytes bytes;
    encode(frame, bytes);
    send(bytes);
  }
  /// The headers of the frames without payload that are here now.
  std::vector<Frame> receive() {
    std::vector<Frame> frames;
    HeaderBytes bytes;
    while (::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size())) {
      EXPECT_EQ(decode(bytes, frames.emplace_back()), "");
    }
    return frames;
  }
  /// Whether the other side has ended the connection.
  bool ended() {
    std::byte byte;
    const ssize_t got = ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    fd_.reset();
  }
  void close() { fd_.reset(); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace fairlead::tcp_fallback
