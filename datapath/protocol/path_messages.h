// What engines say to each other over a path (not the control connection): little-endian, fixed headers, then bytes.
//
//   hello     proves that the path carries messages this way          {epoch}
//   notify    a finished transfer's user value                        {sequence, value, stripes}
//   fragment  a part of a user message, in order                      {sequence, value, total, offset} bytes
//   notify_fragment  the same of a notification that has bytes
//   atomic    an operation on a word, and its two operands            {sequence, region, offset, which, ticket} bytes
//   outcome   what the word held before, or why it was not touched    {sequence, code, held, ticket}
//   consumed  the receiver took events up to here (credits)           {sequence}
//   staged_*  one-sided operations over a path that has none (docs/protocol.md, "Staged mode")
// notify, the fragments, atomic and outcome share one sequence per direction: the receiver takes each number once, in
// order.
// Parsing never trusts a length; a message that does not parse names the reason and closes the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fairlead/status.h"

namespace fairlead::datapath {

enum class MessageType : std::uint8_t {
  kHello = 1,
  kNotify = 2,
  kFragment = 3,
  kConsumed = 4,
  kStagedWrite = 5,  // bytes to place at (region, offset)
  kStagedReadRequest = 6,
  kStagedReadData = 7,  // bytes of read `sequence` from `offset` within the request on
  kStagedAck = 8,       // all staged operations up to `sequence` are done, but for the one with `code`
  kNotifyFragment = 9,
  kAtomic = 10,
  kOutcome = 11,  // of atomic `total`
};

/// One header for all types: 40 bytes on the wire; a field that a type does not use is 0.
struct PathMessage {
  MessageType type = MessageType::kHello;
  Code code = Code::kOk;
  std::uint16_t stripes = 1;
  std::uint32_t length = 0;    // of a read request; of an atomic, which
  std::uint64_t sequence = 0;  // or epoch
  std::uint64_t value = 0;     // user value; region id for staged operations and atomics
  std::uint64_t offset = 0;
  std::uint64_t total = 0;          // or ticket
  std::span<const std::byte> data;  // what follows the header
};

inline constexpr std::size_t kPathHeaderBytes = 40;
using PathHeader = std::byte[kPathHeaderBytes];

/// Writes the header; `data` is sent behind it by the caller.
void encode(const PathMessage& message, PathHeader& header) noexcept;
/// Nothing if the bytes are too short, the type or the code is unknown.
[[nodiscard]] std::optional<PathMessage> decode(std::span<const std::byte> bytes) noexcept;

}  // namespace fairlead::datapath
