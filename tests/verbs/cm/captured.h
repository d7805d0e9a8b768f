// MADs that Linux rxe and its connection manager sent, captured between 10.7.0.2 (active) and 10.7.0.1 (passive).
//
// Each is given up to its last byte that is not zero; pad() restores the rest.
#pragma once

#include <string_view>

#include "verbs/cm/messages.h"

namespace fairlead::cm::test {

inline constexpr std::string_view kReq =
    "010702030000000000000002aa3159cc0010000000000000cc5931aa000000000000000001061c06505400fffe000002000000000000000000"
    "00110100000001000000a0e2f424a7ffff37f0ffffffff00000000000000000000ffff0a07000200000000000000000000ffff0a070001ce71"
    "f0000040009800000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040edc7000000"
    "0000000000000000000a0700020000000000000000000000000a070001";
inline constexpr std::string_view kRep =
    "010702030000000000000002aa3159cc0013000000000000b4143e2ecc5931aa00000000000011000000000086e9fb00010178e0505400fffe"
    "000001";
inline constexpr std::string_view kRtu = "010702030000000000000002aa3159cc0014000000000000cc5931aab4143e2e";
inline constexpr std::string_view kDreq = "010702030000000000000002aa3159cc0015000000000000cc5931aab4143e2e000011";
inline constexpr std::string_view kDrep = "010702030000000000000002aa3159cc0016000000000000b4143e2ecc5931aa";

inline MadBytes pad(std::string_view hex) {
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  MadBytes bytes{};
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes[i / 2] = static_cast<std::byte>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  }
  return bytes;
}

}  // namespace fairlead::cm::test
