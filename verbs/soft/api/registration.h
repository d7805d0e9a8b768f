// Registering memory: what all verbs that make a region share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "verbs/soft/memory/mr_table.h"

namespace fairlead::soft {

enum class Profile : std::uint8_t;

struct Registration {
  std::string_view verb;  // for the messages
  std::byte* start = nullptr;
  std::size_t length = 0;
  std::uint64_t base = 0;  // the address that will name `start`
  unsigned access = 0;     // ibv_access_flags
};

/// 0, or an errno after saying why.
[[nodiscard]] int check_access(std::string_view verb, unsigned access, Profile profile);
/// The region, or null with errno set. Any thread; takes the domain's lock.
[[nodiscard]] Mr* register_region(Pd& pd, const Registration& wanted);

}  // namespace fairlead::soft
