// Reads frames from the stream and does what they say: places payload, answers reads, delivers messages, ends requests.
//
// The payload of large frames is received straight into its destination: a registered region for writes, the
// requester's segments for read data. Small frames are read ahead in batches, so that one system call serves many;
// after a large payload only one header is read ahead, so that a stream of large frames is never copied.
//
// Every byte of the destination is looked up again for every system call, so a region that is deregistered in the
// middle of a payload is not touched any more: the rest of the payload is discarded and the write refused.
// Pages that vanish (unmapped, or of a truncated file) fail one request: a system call says so, and what was read ahead
// is copied under guard (base/guarded.h).
// Threads: the driving thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/byte_stream.h"
#include "tcp_fallback/frame.h"
#include "tcp_fallback/request_queue.h"
#include "tcp_fallback/sender.h"
#include "transport/grant_table.h"

namespace fairlead::tcp_fallback {

class Receiver {
 public:
  /// Called from inside advance(); may call stop() and post requests.
  class Sink {
   public:
    virtual void on_message(std::span<const std::byte> bytes) noexcept = 0;
    virtual void on_completion(const datapath::Ended& ended) noexcept = 0;

   protected:
    ~Sink() = default;
  };

  /// Why the stream cannot go on.
  enum class End : std::uint8_t { kNone, kClosed, kError, kMalformed };
  struct Outcome {
    std::size_t bytes = 0;
    End end = End::kNone;
    int error = 0;            // kError: errno
    std::string_view reason;  // kMalformed; static
  };

  /// `domain`: whose grants the peer may use.
  Receiver(RequestQueue& requests, Sender& sender, datapath::GrantReader& grants, datapath::DomainNumber domain = 0);

  /// How many requests the peer may leave unacknowledged.
  void set_peer_depth(std::uint32_t depth) noexcept { peer_depth_ = depth; }
  /// Receives until the stream is empty, or about `turn` bytes; then acknowledgements are due.
  Outcome advance(ByteStream& stream, Sink& sink, std::size_t turn = kLongTurn) noexcept;
  /// Nothing more is placed, delivered or read, from now on.
  void stop() noexcept { stopped_ = true; }

 private:
  static constexpr std::size_t kReadAhead = 16 * 1024;
  static constexpr std::size_t kBufferBytes = kHeaderBytes + kMaxMessage + kReadAhead;
  static constexpr std::size_t kMaxPieces = kMaxSegments + 1;

  [[nodiscard]] std::size_t buffered() const noexcept { return buffer_end_ - buffer_begin_; }
  IoResult receive_into_buffer(ByteStream& stream, std::size_t& wanted) noexcept;
  IoResult receive_payload(ByteStream& stream, std::size_t most, std::size_t& wanted) noexcept;
  std::size_t destination(std::span<iovec> pieces) noexcept;
  void lose_destination() noexcept;
  void take_payload_from_buffer() noexcept;
  void placed(std::uint64_t bytes) noexcept;

  // Each returns an empty view, or why the peer is not to be trusted.
  std::string_view parse(Sink& sink) noexcept;
  std::string_view begin(const Frame& frame, Sink& sink) noexcept;
  std::string_view begin_write(const Frame& frame) noexcept;
  std::string_view begin_read(const Frame& frame) noexcept;
  std::string_view begin_read_data(const Frame& frame) noexcept;
  std::string_view on_ack(const Frame& frame, Sink& sink) noexcept;
  void finish_request(Code code) noexcept;
  void flush_ack() noexcept;

  RequestQueue& requests_;
  Sender& sender_;
  datapath::GrantReader& grants_;
  const datapath::DomainNumber domain_;
  std::uint32_t peer_depth_ = 0;
  bool stopped_ = false;

  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffer_begin_ = 0, buffer_end_ = 0;
  std::size_t buffer_needed_ = kHeaderBytes;  // bytes without which parse() cannot go on
  std::size_t read_ahead_ = kReadAhead;

  Frame frame_;                     // whose payload is arriving
  std::uint64_t payload_left_ = 0;  // bytes of it that have not
  std::uint32_t next_seq_ = 0;      // of the peer's request that is due
  bool write_open_ = false;         // a write whose last fragment has not come
  Code verdict_ = Code::kOk;        // of the write that is arriving
  std::uint64_t refused_ = 0;       // writes of the peer that were refused
  bool ack_due_ = false;            // next_seq_ - 1 has ended well and was not acknowledged
};

}  // namespace fairlead::tcp_fallback
