#include "verbs/soft/wire/icrc.h"

#include <cstring>

#include "base/crc.h"
#include "verbs/soft/wire/bytes.h"
#include "verbs/soft/wire/headers.h"
#include "verbs/soft/wire/ip.h"

namespace fairlead::soft {
namespace {

constexpr std::size_t kPseudoLrhBytes = 8;
constexpr std::byte kUdpProtocol{static_cast<std::uint8_t>(IpProtocol::kUdp)};
constexpr std::byte kBthProtocol{static_cast<std::uint8_t>(IpProtocol::kBth)};

std::byte* put_ipv4(std::byte* at, const UdpFrame& frame) noexcept {
  at[0] = std::byte{0x45};
  at[1] = std::byte{0xff};  // type of service
  store16(at + 2, static_cast<std::uint16_t>(kIpv4HeaderBytes + kUdpHeaderBytes + frame.payload_bytes));
  store16(at + 4, frame.ipv4_id);
  store16(at + 6, frame.ipv4_flags);
  at[8] = std::byte{0xff};  // time to live
  at[9] = kUdpProtocol;
  store16(at + 10, 0xffff);  // checksum
  std::memcpy(at + 12, frame.source.bytes.data() + 12, 4);
  std::memcpy(at + 16, frame.destination.bytes.data() + 12, 4);
  return at + kIpv4HeaderBytes;
}

// A GRH's layout is the same.
std::byte* put_ipv6(std::byte* at, const UdpFrame& frame) noexcept {
  const bool v1 = frame.version == RoceVersion::kV1;
  store32(at, 0x6fffffff);  // traffic class and flow label
  store16(at + 4, static_cast<std::uint16_t>((v1 ? 0 : kUdpHeaderBytes) + frame.payload_bytes));
  at[6] = v1 ? kBthProtocol : kUdpProtocol;
  at[7] = std::byte{0xff};  // hop limit
  std::memcpy(at + 8, frame.source.bytes.data(), 16);
  std::memcpy(at + 24, frame.destination.bytes.data(), 16);
  return at + kIpv6HeaderBytes;
}

// Arithmetic in GF(2)[x] modulo the CRC polynomial, bit-reflected: bit 31 is the coefficient of x^0.
constexpr std::uint32_t kPolynomial = 0xedb88320;
constexpr std::uint32_t kOne = 0x80000000;

constexpr std::uint32_t times_x(std::uint32_t a) noexcept { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1, b = times_x(b)) {
    if ((a & kOne) != 0) product ^= b;
  }
  return product;
}

constexpr std::uint32_t power_of_x(std::uint32_t exponent) noexcept {
  std::uint32_t result = kOne;
  for (std::uint32_t square = kOne >> 1; exponent != 0; exponent >>= 1, square = multiply(square, square)) {
    if ((exponent & 1) != 0) result = multiply(result, square);
  }
  return result;
}

// The polynomial is primitive: x^(2^32-1) = 1, so a negative power is the complement of the exponent.
static_assert(multiply(power_of_x(12345), power_of_x(~12345U)) == kOne);

constexpr std::size_t kMostStart = kPseudoLrhBytes + kIpv6HeaderBytes + kUdpHeaderBytes + Bth::kBytes;

// The masked headers and the BTH; returns their end.
std::byte* put_start(std::byte* bytes, const UdpFrame& frame, const std::byte* bth) noexcept {
  std::memset(bytes, 0xff, kPseudoLrhBytes);
  std::byte* at = bytes + kPseudoLrhBytes;
  if (frame.version == RoceVersion::kV1) {
    at = put_ipv6(at, frame);
  } else {
    at = frame.source.is_ipv4() ? put_ipv4(at, frame) : put_ipv6(at, frame);
    store16(at, frame.source_port);
    store16(at + 2, frame.destination_port);
    store16(at + 4, static_cast<std::uint16_t>(kUdpHeaderBytes + frame.payload_bytes));
    store16(at + 6, 0xffff);  // checksum
    at += kUdpHeaderBytes;
  }
  std::memcpy(at, bth, Bth::kBytes);
  at[4] = std::byte{0xff};  // FECN, BECN and the reserved bits beside them
  return at + Bth::kBytes;
}

}  // namespace

std::uint32_t icrc_start(const UdpFrame& frame, const std::byte* bth) noexcept {
  std::byte bytes[kMostStart];
  return crc32({bytes, put_start(bytes, frame, bth)});
}

std::uint32_t icrc(const UdpFrame& frame, std::span<const std::byte> packet) noexcept {
  return icrc(frame, packet.first(Bth::kBytes), packet.subspan(Bth::kBytes));
}

std::uint32_t icrc(const UdpFrame& frame, std::span<const std::byte> head, std::span<const std::byte> rest) noexcept {
  constexpr std::size_t kSmall = 256;  // copied, so that the CRC starts once
  std::byte bytes[kMostStart + kMostHeaderBytes + kSmall];
  std::byte* end = put_start(bytes, frame, head.data());
  const auto behind = head.subspan(Bth::kBytes);
  std::memcpy(end, behind.data(), behind.size());
  end += behind.size();
  const bool small = rest.size() <= kSmall;
  if (small) {
    std::memcpy(end, rest.data(), rest.size());
    end += rest.size();
  }
  const std::uint32_t start = crc32({bytes, end});
  return small ? start : crc32(rest, start);
}

std::optional<std::uint16_t> explain_by_ipv4_id(std::uint32_t difference, std::size_t payload_bytes) noexcept {
  // The difference is (id difference) * x^(8n), n = bytes from the id to the end of what the CRC covers.
  const std::size_t n = kIpv4HeaderBytes - 4 + kUdpHeaderBytes + payload_bytes - kIcrcBytes;
  const std::uint32_t id = multiply(difference, power_of_x(~static_cast<std::uint32_t>(8 * n)));
  if (id >> 16 != 0) return std::nullopt;
  return __builtin_bswap16(static_cast<std::uint16_t>(id));  // a CRC register takes the first byte lowest
}

}  // namespace fairlead::soft
