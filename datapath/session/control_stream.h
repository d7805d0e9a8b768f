// The bytes of a control connection: a TCP socket (control_socket.h), or a simulation's.
//
// Threads: one at a time (the lane's driver).
#pragma once

#include <string>

#include "base/byte_stream.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

class ControlStream : public ByteStream {
 public:
  /// Of one that was still connecting: whether it stands now. Error: it never will, errno in words: kNotFound:
  /// the host answers, and nobody listens there; else kUnavailable.
  [[nodiscard]] virtual Result<bool> connected() = 0;
  /// Numeric addresses of both ends; empty before the connection stands.
  [[nodiscard]] virtual std::string peer_host() const = 0;
  [[nodiscard]] virtual std::string local_host() const = 0;
  [[nodiscard]] virtual std::string peer_address() const = 0;  // host:port
  /// What an epoll set watches; -1: nothing.
  [[nodiscard]] virtual int fd() const noexcept { return -1; }
};

}  // namespace fairlead::datapath
