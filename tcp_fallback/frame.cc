#include "tcp_fallback/frame.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace fairlead::tcp_fallback {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian: add byte swaps for this machine");

constexpr std::array kMagic = {std::byte{'F'}, std::byte{'L'}, std::byte{'T'}, std::byte{'1'}};
constexpr std::uint8_t kFlagLast = 1;
constexpr std::size_t kDescriptionBytes = 20;
constexpr std::uint8_t kDescriptionVersion = 1;

template <typename T>
void put(std::byte* at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
T get(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t max_length(FrameType type) noexcept {
  switch (type) {
    case FrameType::kWrite:
    case FrameType::kReadData:
      return kMaxFragment;
    case FrameType::kRead:
      return kMaxRead;
    case FrameType::kMessage:
      return kMaxMessage;
    case FrameType::kAck:
      return 0;
  }
  return 0;
}

}  // namespace

std::uint64_t payload_bytes(const Frame& frame) noexcept { return frame.type == FrameType::kRead ? 0 : frame.length; }

void encode(const Frame& frame, HeaderBytes& bytes) noexcept {
  bytes[0] = static_cast<std::byte>(frame.type);
  bytes[1] = static_cast<std::byte>(frame.last ? kFlagLast : 0);
  bytes[2] = static_cast<std::byte>(frame.code);
  bytes[3] = std::byte{0};
  put(&bytes[4], frame.seq);
  put(&bytes[8], frame.key);
  put(&bytes[16], frame.address);
  put(&bytes[24], frame.length);
}

std::string_view decode(std::span<const std::byte, kHeaderBytes> bytes, Frame& frame) noexcept {
  const auto type = static_cast<std::uint8_t>(bytes[0]);
  const auto flags = static_cast<std::uint8_t>(bytes[1]);
  const auto code = static_cast<std::uint8_t>(bytes[2]);
  if (type < static_cast<std::uint8_t>(FrameType::kWrite) || type > static_cast<std::uint8_t>(FrameType::kAck)) {
    return "unknown frame type";
  }
  frame.type = static_cast<FrameType>(type);
  if ((flags & ~kFlagLast) != 0 || bytes[3] != std::byte{0}) return "unknown flags";
  frame.last = (flags & kFlagLast) != 0;
  if (!frame.last && frame.type != FrameType::kWrite && frame.type != FrameType::kReadData) {
    return "a frame that cannot be cut";
  }
  if (code > static_cast<std::uint8_t>(Code::kInternal)) return "unknown code";
  frame.code = static_cast<Code>(code);
  if (frame.code != Code::kOk && frame.type != FrameType::kAck) return "a code outside an acknowledgement";
  frame.seq = get<std::uint32_t>(&bytes[4]);
  frame.key = get<std::uint64_t>(&bytes[8]);
  frame.address = get<std::uint64_t>(&bytes[16]);
  frame.length = get<std::uint64_t>(&bytes[24]);
  if (frame.length > max_length(frame.type)) return "a length beyond its limit";
  // Else a peer could keep us busy without ever finishing a request.
  if (!frame.last && frame.length == 0) return "an empty fragment";
  return {};
}

Token random_token() noexcept {
  Token token{};
  // Never interrupted or short for 16 bytes once the system's pool is seeded (getrandom(2)).
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) std::abort();
  return token;
}

bool equal(const Token& a, const Token& b) noexcept {
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

void encode(const Greeting& greeting, GreetingBytes& bytes) noexcept {
  bytes.fill(std::byte{0});
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  put(&bytes[4], kProtocolVersion);
  std::copy(greeting.token.begin(), greeting.token.end(), bytes.begin() + 8);
  put(&bytes[24], greeting.depth);
  bytes[28] = std::byte{greeting.keeps_lower};
}

std::string_view decode(std::span<const std::byte, kGreetingBytes> bytes, Greeting& greeting) noexcept {
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) return "not a Fairlead data connection";
  if (get<std::uint16_t>(&bytes[4]) != kProtocolVersion) return "another protocol version";
  std::copy_n(bytes.begin() + 8, greeting.token.size(), greeting.token.begin());
  greeting.depth = get<std::uint32_t>(&bytes[24]);
  greeting.keeps_lower = (bytes[28] & std::byte{1}) != std::byte{0};
  if (greeting.depth == 0 || greeting.depth > kMaxDepth) return "a queue depth beyond its limit";
  return {};
}

std::string encode(const Description& description) {
  std::array<std::byte, kDescriptionBytes> bytes{};
  bytes[0] = std::byte{kDescriptionVersion};
  put(&bytes[2], description.port);
  std::copy(description.token.begin(), description.token.end(), bytes.begin() + 4);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Description> decode_description(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  if (bytes.empty()) return {Code::kInvalidArgument, "the peer's tcp path description is empty"};
  if (bytes[0] != std::byte{kDescriptionVersion}) {
    return {Code::kVersionMismatch, fmt::format("the peer's tcp path description has version {}; this end speaks {}",
                                                static_cast<int>(bytes[0]), kDescriptionVersion)};
  }
  if (bytes.size() != kDescriptionBytes) {
    return {Code::kInvalidArgument, fmt::format("the peer's tcp path description has {} bytes; version {} has {}",
                                                bytes.size(), kDescriptionVersion, kDescriptionBytes)};
  }
  Description description;
  description.port = get<std::uint16_t>(&bytes[2]);
  std::copy_n(bytes.begin() + 4, description.token.size(), description.token.begin());
  if (description.port == 0) return {Code::kInvalidArgument, "the peer's tcp path description names port 0"};
  return description;
}

}  // namespace fairlead::tcp_fallback
