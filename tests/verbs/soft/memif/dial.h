// A connection to a memif's socket, of whoever says there what it likes.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <string>
#include <utility>

#include "base/private_fd.h"

namespace fairlead::soft::memif::test {

inline PrivateFd dial(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return PrivateFd(std::move(fd));
}

}  // namespace fairlead::soft::memif::test
