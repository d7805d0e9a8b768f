// The 8 bytes in front of every message on a queue pair, big-endian:
//   0 type(1 message, 2 credit message)   1 control credits returned   2 message credits returned (16 bits)   4 zero
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "verbs/transport/credits.h"

namespace fairlead::verbs {

inline constexpr std::uint32_t kMessageHeaderBytes = 8;

enum class MessageType : std::uint8_t { kMessage = 1, kCredits = 2 };

struct MessageHeader {
  MessageType type = MessageType::kMessage;
  CreditReturn credits;
};

inline void write_header(std::byte* out, const MessageHeader& header) noexcept {
  out[0] = static_cast<std::byte>(header.type);
  out[1] = static_cast<std::byte>(header.credits.controls);
  out[2] = static_cast<std::byte>(header.credits.messages >> 8);
  out[3] = static_cast<std::byte>(header.credits.messages);
  for (int i = 4; i < 8; ++i) out[i] = std::byte{0};
}

/// Nothing if the bytes are no message of ours.
[[nodiscard]] inline std::optional<MessageHeader> read_header(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kMessageHeaderBytes) return std::nullopt;
  const auto type = static_cast<MessageType>(bytes[0]);
  if (type != MessageType::kMessage && type != MessageType::kCredits) return std::nullopt;
  if (type == MessageType::kCredits && bytes.size() != kMessageHeaderBytes) return std::nullopt;
  for (int i = 4; i < 8; ++i) {
    if (bytes[static_cast<std::size_t>(i)] != std::byte{0}) return std::nullopt;
  }
  MessageHeader header;
  header.type = type;
  header.credits.controls = std::to_integer<std::uint32_t>(bytes[1]);
  header.credits.messages = std::to_integer<std::uint32_t>(bytes[2]) << 8 | std::to_integer<std::uint32_t>(bytes[3]);
  return header;
}

}  // namespace fairlead::verbs
