// What a server and the process that runs one of its sessions say to each other, over a socket: frames, each a header
// and so many bytes. Both are of one release; the server trusts what the other says with nothing but that session.
//
// A round: messages of the client's, then kRun; then what is to be said to the client, then kRan. Nobody speaks out of
// turn, and what is asked within a run is answered at once. Threads: one a side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "datapath/command/server_session.h"
#include "datapath/command/session_runner.h"

namespace fairlead::datapath::command {

enum class FrameType : std::uint32_t {
  kBegin = 1,  // server: Begin
  kMessage,    // server: a message of the client's
  kOverrun,    // server: the client sent more than could be kept
  kResume,     // server: the client has another peer; Attempt and HeardBodies
  kWindow,     // server: WindowFrame; whose descriptor was sent before
  kRun,        // server: Run
  kSend,       // the other: a message to the client
  kRan,        // the other: Ran
  // Of images (images.h), in the middle of a run.
  kFindImage,   // the other
  kFoundImage,  // server, which answers
  kAddImage,    // the other
  kImagePart,   // behind one of the last two
};

struct Begin {
  ServerSession::Terms terms;
  std::uint64_t slot = 0;  // of the tenant's meter
};

struct FrameHeader {
  FrameType type = FrameType::kBegin;
  std::uint32_t traffic = 0;  // TrafficClass, of messages
  std::uint64_t bytes = 0;
};

/// Where in the file that came the client's payload is; the capability follows.
struct WindowFrame {
  std::uint64_t offset = 0, bytes = 0;
};

struct Run {
  std::uint64_t for_ns = 0;   // 0: no limit
  std::uint64_t device = 0;   // on which
  std::uint64_t untaken = 0;  // bytes that the client has yet to take
  std::int64_t copy_level = 0;
  std::uint64_t copies_limited = 0;  // 1: and may copy while copy_level is above 0
  std::uint64_t begins = 0;          // 1: it says how the session began, and runs nothing
};

struct Ran {
  SessionRunner::Devices devices;
  std::uint32_t more = 0, welcome = 0, over = 0, reserved = 0;
  std::uint64_t moves = 0;
  std::uint64_t waiting = 0;
  std::uint64_t copied = 0;  // bytes that count against copy_level
  SessionRunner::Counts counts;
};

inline constexpr std::uint64_t kMostFrame = 2 * kMaxPayload;

/// Frames on a socket, buffered until flush().
class FramePipe {
 public:
  explicit FramePipe(int fd) noexcept : fd_(fd) {}

  void put(FrameType type, Bytes bytes, std::uint32_t traffic = 0);
  template <typename Value>
  void put_value(FrameType type, const Value& value) {
    put(type, std::as_bytes(std::span(&value, 1)));
  }
  /// False: the other end has gone.
  [[nodiscard]] bool flush();

  struct Frame {
    FrameHeader header;
    Bytes bytes;  // until the next is read
  };
  /// Waits. Nothing: the other end has gone, or sends what is no frame.
  [[nodiscard]] std::optional<Frame> read();

 private:
  [[nodiscard]] bool fill(std::size_t bytes);

  const int fd_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::size_t begin_ = 0, end_ = 0;  // of what came and was not read, in in_
};

/// The frame's bytes as a value. Nothing: they are not one.
template <typename Value>
[[nodiscard]] std::optional<Value> value_of(const FramePipe::Frame& frame) noexcept {
  if (frame.bytes.size() != sizeof(Value)) return std::nullopt;
  Value value;
  std::memcpy(&value, frame.bytes.data(), sizeof value);
  return value;
}

}  // namespace fairlead::datapath::command
