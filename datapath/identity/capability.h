// What who exports a region gives away, as text that any channel carries: which region, what may be done to it, and a
// secret that shows that its bearer was given it.
//
//   "fairlead1:" region (16 hexadecimal digits) ":" access (2) ":" secret (64)
//
// It holds no key of a device and no address. Who has it is trusted with the region, within its audience. Parsing is
// strict and total. Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "datapath/identity/hmac.h"
#include "fairlead/memory.h"

namespace fairlead::datapath {

struct Capability {
  std::uint64_t region = 0;
  Access access = Access::kNone;
  Digest secret{};
};

inline constexpr std::size_t kCapabilityBytes = 10 + 16 + 1 + 2 + 1 + 64;

[[nodiscard]] std::string to_text(const Capability& capability);
/// Nothing: it is none.
[[nodiscard]] std::optional<Capability> parse_capability(std::string_view text);

}  // namespace fairlead::datapath
