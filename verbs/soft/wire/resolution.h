// How stations ask for and tell each other's Ethernet addresses: ARP over IPv4, neighbour discovery over IPv6.
//
// Only what an end station needs. Whole frames, padded. Source: RFC 826, RFC 5227 (announcements), RFC 4861, 4.3, 4.4.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "verbs/soft/wire/ethernet.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft {

/// One message of either protocol.
struct Resolution {
  enum class Kind : std::uint8_t { kQuestion, kAnswer };
  Kind kind = Kind::kQuestion;
  Gid sender;      // of the family of target; null in an IPv6 question of one who has no address yet
  Mac sender_mac;  // null where the message has none
  Gid target;      // whose address is asked for or told
  Mac target_mac;  // of an answer
};

struct ResolutionFrame {
  static constexpr std::size_t kMostBytes = 86;  // Ethernet, IPv6, ICMPv6 with one option
  std::array<std::byte, kMostBytes> bytes{};
  std::size_t size = 0;
};

/// Asks everybody, or, if `known` is given, that station, whether it still has the address.
[[nodiscard]] ResolutionFrame ask(const Gid& own, const Mac& own_mac, const Gid& target, const Mac* known = nullptr);
/// Answers a question. `to` is null where the asker has no address.
[[nodiscard]] ResolutionFrame answer(const Gid& own, const Mac& own_mac, const Gid& to, const Mac& to_mac);
/// Tells everybody, unasked.
[[nodiscard]] ResolutionFrame announce(const Gid& own, const Mac& own_mac);

/// A frame of type ARP, or of type IPv6 that holds ICMPv6; nothing where it is neither message, or malformed.
[[nodiscard]] std::optional<Resolution> parse_resolution(std::span<const std::byte> frame) noexcept;

}  // namespace fairlead::soft
