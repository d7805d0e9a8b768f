#include "shm/meeting/greeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace fairlead::shm {
namespace {

static_assert(std::endian::native == std::endian::little, "both ends are one host's, and the wire is little-endian");

constexpr std::array kMagic = {std::byte{'F'}, std::byte{'L'}, std::byte{'S'}, std::byte{'1'}};
constexpr std::size_t kDescriptionBytes = 42;

template <typename T>
void put(std::byte* at, const T& value) noexcept {
  std::memcpy(at, &value, sizeof value);
}
template <typename T>
T get(const void* at) noexcept {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

std::string encode(const Description& description) {
  std::array<std::byte, kDescriptionBytes> bytes{};
  bytes[0] = std::byte{kProtocolVersion};
  put(&bytes[2], description.place);
  put(&bytes[10], description.socket);
  put(&bytes[18], description.token);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Description> decode_description(std::string_view bytes) {
  if (bytes.empty()) return {Code::kInvalidArgument, "a path description of shm has 0 bytes"};
  if (const auto version = static_cast<std::uint8_t>(bytes[0]); version != kProtocolVersion) {
    return {Code::kVersionMismatch,
            fmt::format("the peer's shm speaks version {}, this one {}; run the same release at both ends", version,
                        kProtocolVersion)};
  }
  if (bytes.size() != kDescriptionBytes) {
    return {Code::kInvalidArgument,
            fmt::format("a path description of shm has {} bytes instead of {}", bytes.size(), kDescriptionBytes)};
  }
  if (bytes[1] != 0 || get<std::uint64_t>(bytes.data() + 34) != 0) {
    return {Code::kInvalidArgument, "a path description of shm has something where zeros should be"};
  }
  return Description{.place = get<std::uint64_t>(bytes.data() + 2),
                     .socket = get<std::uint64_t>(bytes.data() + 10),
                     .token = get<Token>(bytes.data() + 18)};
}

void encode(const Greeting& greeting, GreetingBytes& bytes) noexcept {
  bytes = {};
  put(&bytes[0], kMagic);
  put(&bytes[4], std::uint16_t{kProtocolVersion});
  put(&bytes[8], greeting.token);
  put(&bytes[24], greeting.own);
  put(&bytes[40], greeting.own_address);
}

std::string_view decode(std::span<const std::byte> bytes, Greeting& greeting) noexcept {
  if (bytes.size() != kGreetingBytes) return "a greeting of another size";
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin())) return "a greeting of something else";
  if (get<std::uint16_t>(&bytes[4]) != kProtocolVersion) return "a greeting of another version";
  if (get<std::uint16_t>(&bytes[6]) != 0) return "a greeting with something where zeros should be";
  greeting.token = get<Token>(&bytes[8]);
  greeting.own = get<Token>(&bytes[24]);
  greeting.own_address = get<std::uint64_t>(&bytes[40]);
  return {};
}

}  // namespace fairlead::shm
