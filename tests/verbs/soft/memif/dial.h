// A memif's socket, and connections to it, of whoever says there what it likes, or nothing.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/private_fd.h"

namespace fairlead::soft::memif::test {

/// What of these it is to do with the name: ::connect, ::bind.
inline PrivateFd socket_at(const std::string& name, int (*use)(int, const sockaddr*, socklen_t)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(use(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return PrivateFd(std::move(fd));
}

inline PrivateFd dial(const std::string& name) { return socket_at(name, &::connect); }

inline PrivateFd listen_at(const std::string& name) {
  PrivateFd socket = socket_at(name, &::bind);
  EXPECT_EQ(::listen(socket.get(), 64), 0);
  return socket;
}

}  // namespace fairlead::soft::memif::test
