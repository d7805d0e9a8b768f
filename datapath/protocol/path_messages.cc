#include "datapath/protocol/path_messages.h"

#include <bit>
#include <cstring>

namespace fairlead::datapath {
namespace {

static_assert(std::endian::native == std::endian::little, "the codec copies little-endian fields as they are");

template <typename T>
void put(std::byte*& at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <typename T>
T take(const std::byte*& at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

}  // namespace

void encode(const PathMessage& message, PathHeader& header) noexcept {
  std::byte* at = header;
  put(at, static_cast<std::uint8_t>(message.type));
  put(at, static_cast<std::uint8_t>(message.code));
  put(at, message.stripes);
  put(at, message.length);
  put(at, message.sequence);
  put(at, message.value);
  put(at, message.offset);
  put(at, message.total);
}

std::optional<PathMessage> decode(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kPathHeaderBytes) return std::nullopt;
  const std::byte* at = bytes.data();
  const auto type = take<std::uint8_t>(at);
  const auto code = take<std::uint8_t>(at);
  if (type < static_cast<std::uint8_t>(MessageType::kHello) ||
      type > static_cast<std::uint8_t>(MessageType::kOutcome) || code > static_cast<std::uint8_t>(Code::kInternal)) {
    return std::nullopt;
  }
  PathMessage message;
  message.type = static_cast<MessageType>(type);
  message.code = static_cast<Code>(code);
  message.stripes = take<std::uint16_t>(at);
  message.length = take<std::uint32_t>(at);
  message.sequence = take<std::uint64_t>(at);
  message.value = take<std::uint64_t>(at);
  message.offset = take<std::uint64_t>(at);
  message.total = take<std::uint64_t>(at);
  message.data = bytes.subspan(kPathHeaderBytes);
  return message;
}

}  // namespace fairlead::datapath
