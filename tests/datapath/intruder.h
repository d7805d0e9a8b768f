// One that connects to an engine's control port and says there what it likes.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "datapath/session/control_channel.h"
#include "datapath/session/control_socket.h"
#include "fairlead/config.h"

namespace fairlead::datapath {

using Until = std::function<bool(const control::Frame&)>;

inline constexpr std::chrono::seconds kPatience{60};

inline UniqueFd dial(const std::string& address, int send_buffer = 0) {
  const HostPort at = *parse_host_port(address);
  Result<UniqueFd> fd = start_connect(at.host, at.port);
  EXPECT_TRUE(fd);
  if (send_buffer != 0) ::setsockopt(fd->get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
  pollfd writable{fd->get(), POLLOUT, 0};
  EXPECT_EQ(::poll(&writable, 1, 10'000), 1);
  return std::move(*fd);
}

/// A control connection that says what it likes.
class Intruder {
 public:
  explicit Intruder(const std::string& address, int send_buffer = 0) : fd_(dial(address, send_buffer)) {}

  void say(std::string_view bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// As much as the socket takes now.
  std::size_t try_to_say(std::string_view bytes) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  /// Takes what has arrived; false once the engine has closed the connection.
  bool take(const Until& visit, int wait_ms = 0) {
    pollfd readable{fd_.get(), POLLIN, 0};
    ::poll(&readable, 1, wait_ms);
    char bytes[65536];
    const ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return false;
    if (n < 0) return true;
    reader_.append(bytes, static_cast<std::size_t>(n));
    control::Frame frame;
    for (Result<bool> next = reader_.next(frame); next && *next; next = reader_.next(frame)) visit(frame);
    return true;
  }
  /// The first frame for which `wanted` holds; nothing if the engine closes the connection before.
  std::optional<control::Frame> answer(const Until& wanted) {
    std::optional<control::Frame> found;
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    const auto visit = [&](const control::Frame& frame) {
      if (!found && wanted(frame)) found = frame;
      return true;
    };
    while (!found && std::chrono::steady_clock::now() < deadline) {
      if (!take(visit, 100)) break;
    }
    return found;
  }
  bool closed_by_engine() {
    return !answer([](const control::Frame&) { return false; }) && !take([](const control::Frame&) { return true; });
  }

 private:
  UniqueFd fd_;
  FrameReader reader_;
};

}  // namespace fairlead::datapath
