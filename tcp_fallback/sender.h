// Turns requests and responses into frames and hands them to the stream, never waiting.
//
// Two queues take turns frame by frame, so that an acknowledgement does not wait behind megabytes of payload: requests
// (long ones in fragments) and responses (acknowledgements and read data). A few frames are staged ahead and sent with
// one call; payload goes from where it lies, without a copy in user space.
//
// What a header has promised must follow. If the source of a payload vanishes in the middle (deregistered, or its
// pages are gone), zeros are sent in its place and the request fails by its acknowledgement or local verdict.
// Threads: the driving thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_stream.h"
#include "tcp_fallback/frame.h"
#include "tcp_fallback/request_queue.h"
#include "tcp_fallback/ring.h"
#include "transport/grant_table.h"

namespace fairlead::tcp_fallback {

class Sender {
 public:
  /// `domain`: whose grants the peer's reads may use.
  Sender(RequestQueue& requests, datapath::GrantReader& grants, datapath::DomainNumber domain = 0) noexcept
      : requests_(requests), grants_(grants), domain_(domain) {}

  void queue_ack(std::uint32_t seq, Code code = Code::kOk);
  /// The read's data, then its acknowledgement.
  void queue_read(const Frame& read);
  /// Responses that are not staged yet.
  [[nodiscard]] std::size_t responses() const noexcept { return responses_.size(); }

  [[nodiscard]] bool idle() const noexcept {
    return staged_.empty() && responses_.empty() && next_request_ == requests_.end();
  }
  /// Nothing waits but an acknowledgement, and that says ok.
  [[nodiscard]] bool owes_an_ack_alone() noexcept {
    return staged_.empty() && next_request_ == requests_.end() && responses_.size() == 1 &&
           responses_.front().frame.type == FrameType::kAck && responses_.front().frame.code == Code::kOk;
  }
  /// Sends what the stream takes, within a budget. error: 0 (idle, or more to do), EAGAIN (the stream is full), other.
  IoResult flush(ByteStream& stream, std::size_t turn = kLongTurn) noexcept;

 private:
  struct Response {
    Frame frame;               // kRead or kAck
    std::uint64_t offset = 0;  // read: bytes staged
  };
  struct Staged {
    Frame frame;
    HeaderBytes header;
    std::uint64_t request = 0;  // write, message: its number
    std::uint64_t offset = 0;   // write: of the fragment in the request
    std::uint64_t sent = 0;     // bytes of header and payload
    bool ends_request = false;
    bool padded = false;  // the payload's source is gone
  };
  static constexpr std::size_t kMaxPieces = 128;

  void stage() noexcept;
  void stage_request() noexcept;
  void stage_response() noexcept;
  void push_staged(Staged staged) noexcept;
  std::size_t gather(std::size_t frames, std::span<iovec> pieces) noexcept;
  std::size_t gather_payload(Staged& staged, std::span<iovec> pieces) noexcept;
  IoResult send_staged(ByteStream& stream, std::size_t most, std::size_t& wanted) noexcept;
  void consume(std::size_t bytes) noexcept;
  void lose_source(Staged& staged) noexcept;
  void note_loss(Staged& staged) noexcept;

  RequestQueue& requests_;
  datapath::GrantReader& grants_;
  const datapath::DomainNumber domain_;
  Ring<Response> responses_;
  Ring<Staged> staged_;
  std::uint64_t staged_bytes_ = 0;  // unsent bytes of staged_
  std::uint64_t next_request_ = 0;  // the request to be staged next,
  std::uint64_t next_offset_ = 0;   // and where in it
  bool requests_turn_ = false;
};

}  // namespace fairlead::tcp_fallback
