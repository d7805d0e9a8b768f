// What crosses the meeting's socket, and what a path tells its peer beforehand. All integers are little-endian.
//
//   description, 42 bytes: u8 version | u8 0 | u64 place | u64 socket | token[16] | u64 0
//   greeting, 48 bytes:    magic "FLS1" | u16 version | u16 0 | token[16] | own[16] | u64 own's address
//
// The active end's greeting carries the descriptor of the segment that both map. `token` is the receiver's, by which it
// knows that this is who it was told of; `own` is the sender's, which it also has in its memory at that address: who
// can read it there by its process id has shown that this process is that id, and that the kernel lets it copy. After
// the greetings a packet of one byte wakes who sleeps. Nothing that arrives is trusted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fairlead/status.h"
#include "shm/meeting/token.h"

namespace fairlead::shm {

inline constexpr std::uint8_t kProtocolVersion = 4;  // 4: requests say what has ended

/// Path::local_description.
struct Description {
  std::uint64_t place = 0;   // Place::number
  std::uint64_t socket = 0;  // the endpoint's, in the place's directory
  Token token{};
};
[[nodiscard]] std::string encode(const Description& description);
/// Errors: kVersionMismatch, kInvalidArgument (size, what must be zero).
[[nodiscard]] Result<Description> decode_description(std::string_view bytes);

inline constexpr std::size_t kGreetingBytes = 48;
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
struct Greeting {
  Token token{};
  Token own{};
  std::uint64_t own_address = 0;
};
void encode(const Greeting& greeting, GreetingBytes& bytes) noexcept;
/// Fills `greeting` and returns an empty view, or returns the reason for which the bytes are none.
[[nodiscard]] std::string_view decode(std::span<const std::byte> bytes, Greeting& greeting) noexcept;

}  // namespace fairlead::shm
