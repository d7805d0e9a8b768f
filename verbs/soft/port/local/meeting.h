// How devices of one user on one host find each other: a Unix socket for each address, in the directory where this
// user's processes meet (own_user.h), named after the network namespace, the address, and the place among those who
// share it. What the socket proves is what the system says of its other end; an address proves nothing.
//
//   greeting, 24 bytes, with a descriptor of the memory: magic "FLLM" | u8 version | u8 place, 255: it has the address
//   alone | u16 0 | gid[16]
//
// The end that connects makes the memory, and may use it at once. Who does not know the version hangs up.
// Threads: stateless.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/private_fd.h"
#include "fairlead/status.h"
#include "verbs/soft/wire/gid.h"

namespace fairlead::soft::local {

/// Whose packets: an address, and the upper byte of the queue pair numbers if others have the address too.
struct Party {
  static constexpr std::uint8_t kAlone = 255;
  Gid gid;
  std::uint8_t place = kAlone;
  friend bool operator==(const Party&, const Party&) = default;
};

inline constexpr std::size_t kGreetingBytes = 24;
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
[[nodiscard]] GreetingBytes encode(const Party& party) noexcept;
[[nodiscard]] std::optional<Party> decode(std::span<const std::byte> bytes) noexcept;

/// Where the devices of the calling thread's network namespace meet. Errors: there is no directory to meet in.
[[nodiscard]] Result<std::string> meeting_place();
/// The name of a party's socket there.
[[nodiscard]] std::string meeting_of(const std::string& place, const Party& party);

/// Takes the name, which is this party's alone, from a process that is no more. Errors name the file.
[[nodiscard]] Result<PrivateFd> listen_at(const std::string& name);
/// Never waits. Not valid: nobody is there, or another user.
[[nodiscard]] PrivateFd dial(const std::string& name) noexcept;
/// Who waits at the listener, if it is of this user; never waits. Not valid with `more`: it was not, ask again;
/// without: nobody waits, or errno says why who does is not let in.
[[nodiscard]] PrivateFd accept_from(int listener, bool& more) noexcept;

}  // namespace fairlead::soft::local
