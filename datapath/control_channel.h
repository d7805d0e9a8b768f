// A control connection: protobuf frames over one non-blocking TCP socket.
//
// On the wire: the 8 bytes "FAIRLEAD" once from each end, then frames of {u32 little-endian length, Frame}. A frame is
// at most kMaxFrame bytes; longer ones, and bytes that do not parse, end the connection with a reason.
// Threads: one at a time (the lane's driver).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "datapath/base/unique_fd.h"
#include "datapath/control.pb.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

/// Splits a byte stream into frames. Kept apart from the socket so that a fuzzer can feed it.
class FrameReader {
 public:
  static constexpr std::uint32_t kMaxFrame = 1u << 20;

  void append(const char* data, std::size_t size) { buffer_.append(data, size); }
  /// Takes the next whole frame. false: more bytes are needed. Errors: not a Fairlead peer, too long, malformed.
  Result<bool> next(control::Frame& frame);

 private:
  std::string buffer_;
  std::size_t consumed_ = 0;
  bool preamble_seen_ = false;
};

class ControlChannel {
 public:
  /// Takes over a socket that is connected, or still connecting.
  ControlChannel(UniqueFd fd, bool connecting);

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool connecting() const noexcept { return connecting_; }
  /// Whether the socket should be watched for writability.
  [[nodiscard]] bool wants_write() const noexcept { return connecting_ || sent_ < out_.size(); }

  /// Queues a frame and tries to send it. A failure shows in the next flush() or read().
  void send(const control::Frame& frame);
  /// Sends what is queued. Errors: the connection failed or broke (errno in words), or the peer does not read.
  Status flush();
  /// Reads what has arrived and hands over whole frames until `handle` returns false. Errors as flush(), and
  /// kPeerDied at the end of the stream.
  Status read(const std::function<bool(const control::Frame&)>& handle);

  /// Numeric addresses of both ends; empty before the connection stands.
  [[nodiscard]] std::string peer_host() const;
  [[nodiscard]] std::string local_host() const;
  [[nodiscard]] std::string peer_address() const;  // host:port

 private:
  UniqueFd fd_;
  bool connecting_;
  FrameReader reader_;
  std::string out_;
  std::size_t sent_ = 0;
};

/// Starts a non-blocking connection to a numeric address. Errors name the address and the cause.
Result<UniqueFd> start_connect(const std::string& numeric_host, std::uint16_t port);
/// A listening socket; an empty host means all addresses. Errors: the port in use, an address that is not ours.
Result<UniqueFd> start_listen(const std::string& host, std::uint16_t port);
/// "host:port" of a socket's own end.
std::string socket_address(int fd, bool peer_end);

}  // namespace fairlead::datapath
