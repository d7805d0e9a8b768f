// A control connection: frames over one stream of bytes.
//
// On the wire: the 8 bytes "FAIRLEAD" once from each end, then frames of {u32 little-endian length, Frame}. A frame is
// at most kMaxFrame bytes; longer ones, and bytes that do not parse, end the connection with a reason.
// A peer gets no more of this end than its share: a call of read() takes a bounded number of bytes and frames, and
// while the peer lets more than kReadMark bytes of ours lie, nothing more of it is read. Threads: one at a time (the
// lane's driver).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "datapath/protocol/frames.h"
#include "datapath/session/control_stream.h"
#include "fairlead/status.h"

namespace fairlead::datapath {

/// Splits a byte stream into frames. Kept apart from the socket so that a fuzzer can feed it.
class FrameReader {
 public:
  static constexpr std::uint32_t kMaxFrame = 1u << 20;

  void append(const char* data, std::size_t size) { buffer_.append(data, size); }
  /// Takes the next whole frame. false: more bytes are needed. Errors: not a Fairlead peer, too long, malformed.
  Result<bool> next(control::Frame& frame);
  /// Bytes that are kept.
  [[nodiscard]] std::size_t held() const noexcept { return buffer_.size(); }

 private:
  std::string buffer_;
  std::size_t consumed_ = 0;
  bool preamble_seen_ = false;
};

/// A frame as it lies on the wire.
[[nodiscard]] std::string to_wire(const control::Frame& frame);

class ControlChannel {
 public:
  static constexpr std::size_t kReadMark = std::size_t{8} << 20;
  static constexpr std::size_t kMaxQueued = std::size_t{16} << 20;
  static constexpr std::size_t kTurnFrames = 64;         // that one read() hands over
  static constexpr std::size_t kTurnBytes = 128 * 1024;  // that one read() takes from the stream

  /// Takes over a stream that is connected, or still connecting.
  ControlChannel(std::unique_ptr<ControlStream> stream, bool connecting);

  [[nodiscard]] const ControlStream& stream() const noexcept { return *stream_; }
  [[nodiscard]] bool connecting() const noexcept { return connecting_; }
  /// Whether the stream should be watched for writability.
  [[nodiscard]] bool wants_write() const noexcept { return connecting_ || queued() != 0; }
  /// Whether it should be watched for readability.
  [[nodiscard]] bool wants_read() const noexcept { return queued() <= kReadMark; }
  /// Frames wait here for the next read(), whether or not the stream has more.
  [[nodiscard]] bool pending() const noexcept { return more_ && wants_read(); }
  /// Bytes that the peer's end has not taken yet, and what is kept for them.
  [[nodiscard]] std::size_t queued() const noexcept { return out_.size() - sent_; }
  [[nodiscard]] std::size_t held() const noexcept { return out_.size(); }
  /// Bytes that came in all.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

  /// Queues a frame as to_wire() makes it, and tries to send it. Errors as flush(); once one has shown, nothing more is
  /// queued.
  Status send(std::string_view wire);
  /// Sends what is queued. Errors: the connection failed or broke (errno in words), or the peer does not read.
  Status flush();
  /// Reads what has arrived, within its bounds, and hands over whole frames until `handle` returns false. Errors as
  /// flush(), and kPeerDied at the end of the stream.
  Status read(const std::function<bool(const control::Frame&)>& handle);

 private:
  Status fail(Status why);

  std::unique_ptr<ControlStream> stream_;
  bool connecting_;
  FrameReader reader_;
  bool more_ = false;  // reader_ may have a whole frame
  std::uint64_t received_ = 0;
  std::string out_;
  std::size_t sent_ = 0;
  Status broken_;  // nothing can be sent any more
};

}  // namespace fairlead::datapath
