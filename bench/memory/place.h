// Where an end of a measurement has its memory.
#pragma once

#include <string>
#include <string_view>

#include "fairlead/status.h"

namespace fairlead::bench {

struct Place {
  static constexpr int kHost = -1;
  int device = kHost;  // by CUDA's number
  [[nodiscard]] bool on_host() const noexcept { return device == kHost; }
  friend bool operator==(const Place&, const Place&) = default;
};

/// "host", "cuda:1".
[[nodiscard]] std::string to_string(Place place);
/// What to_string() writes, and "cuda", which is "cuda:0". Errors: kInvalidArgument, with what is legal.
Result<Place> parse_place(std::string_view text);
}  // namespace fairlead::bench
