// A connected, ordered stream of bytes that never blocks: a TCP socket today, TLS or a test's script as well.
// Threads: one at a time.
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <span>

namespace fairlead {

/// What a call moved. error: 0, or an errno value when nothing was moved. End of stream: 0 bytes and no error.
struct IoResult {
  std::size_t bytes = 0;
  int error = 0;

  [[nodiscard]] bool would_block() const noexcept { return error == EAGAIN || error == EWOULDBLOCK; }
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual IoResult send(std::span<iovec> pieces) noexcept = 0;
  virtual IoResult receive(std::span<iovec> pieces) noexcept = 0;

 protected:
  ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;
};

}  // namespace fairlead
