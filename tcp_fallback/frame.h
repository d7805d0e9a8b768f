// What crosses a data connection: one greeting each way, then frames. All integers are little-endian.
//
//   greeting, 32 bytes:  magic "FLT1" | u16 version | u16 0 | token[16] | u32 depth | u32 1 (keeps the lower)
//   header, 32 bytes:    u8 type | u8 flags | u8 code | u8 0 | u32 seq | u64 key | u64 address | u64 length
//
// Each side numbers its requests (write, read, message) from 0; `seq` is the low 32 bits. Frames by type:
//
//   type      sent by    fields in use                             followed by
//   write     requester  seq, key, address, length, flag last      length bytes (a request may be cut into fragments)
//   read      requester  seq, key, address, length                 -
//   message   requester  seq, key (see below), length              length bytes
//   read data responder  seq, address (offset in the read), length length bytes
//   ack       responder  seq, code                                 -
//
// An ack says: every request before `seq` has ended well, and `seq` ended with `code`. It follows a read's data. A
// requester never has more than `depth` requests unacknowledged, its own and the peer's, so a responder's memory is
// bounded by what it said itself. A requester of an older release, whose greeting ends in 0, keeps its own alone.
// A message's key is the number of its writes that the requester had seen refused when the message was posted. Where
// the responder has refused more, the message was posted behind a write that failed: it is not delivered, and its ack
// says kAborted. The same goes for kUndeliverable, which the requester says where the source of such a write is gone
// on its own side. So a message arrives only if every write before it was placed.
// Of a write or read an ack's code is kOk or kProtectionError; of a message kOk, or kAborted behind such a write. Any
// other ends the connection: it would make a request neither done nor failed.
// Nothing that arrives is trusted: decode() gives a value or the reason why not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::tcp_fallback {

inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kGreetingBytes = 32;
inline constexpr std::uint16_t kProtocolVersion = 1;
inline constexpr std::size_t kLongTurn = 2 * 1024 * 1024;           // received or sent before others get their turn
inline constexpr std::uint64_t kMaxMessage = 64 * 1024;             // payload of a message frame
inline constexpr std::uint64_t kMaxFragment = 1024 * 1024;          // payload of a write or read data frame
inline constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 62;   // bytes of one read request
inline constexpr std::uint64_t kUndeliverable = ~std::uint64_t{0};  // a message's key
inline constexpr std::uint32_t kMaxDepth = 65536;                   // requests that a peer may leave unacknowledged

enum class FrameType : std::uint8_t { kWrite = 1, kRead = 2, kMessage = 3, kReadData = 4, kAck = 5 };

struct Frame {
  FrameType type = FrameType::kAck;
  bool last = true;  // the last fragment of its request
  Code code = Code::kOk;
  std::uint32_t seq = 0;
  std::uint64_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;

/// Bytes that follow the header.
[[nodiscard]] std::uint64_t payload_bytes(const Frame& frame) noexcept;

void encode(const Frame& frame, HeaderBytes& bytes) noexcept;
/// Fills `frame` and returns an empty view, or returns the reason for which the bytes are no legal header.
[[nodiscard]] std::string_view decode(std::span<const std::byte, kHeaderBytes> bytes, Frame& frame) noexcept;

/// 128 random bits that name a path to its peer, and prove that the peer was told them.
using Token = std::array<std::byte, 16>;
[[nodiscard]] Token random_token() noexcept;
/// In a time that does not depend on where they differ.
[[nodiscard]] bool equal(const Token& a, const Token& b) noexcept;

struct Greeting {
  Token token{};
  std::uint32_t depth = 0;
  bool keeps_lower = false;  // of the depths that both ends say
};
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
void encode(const Greeting& greeting, GreetingBytes& bytes) noexcept;
[[nodiscard]] std::string_view decode(std::span<const std::byte, kGreetingBytes> bytes, Greeting& greeting) noexcept;

/// Path::local_description: u8 version | u8 0 | u16 port | token[16].
struct Description {
  std::uint16_t port = 0;
  Token token{};
};
[[nodiscard]] std::string encode(const Description& description);
/// Errors: kVersionMismatch, kInvalidArgument (size, port).
[[nodiscard]] Result<Description> decode_description(std::string_view bytes);

}  // namespace fairlead::tcp_fallback
