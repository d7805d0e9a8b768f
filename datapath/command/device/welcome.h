// What a service's welcome says, as its client takes it. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "datapath/command/codec.h"
#include "fairlead/command.h"

namespace fairlead::datapath::command {

inline constexpr std::uint64_t kMostSaid = std::uint64_t{1} << 40;  // ms, and bytes, that a service may speak of

struct WelcomeRead {
  std::vector<fairlead::command::Limits> devices;  // at least one
  std::optional<WelcomeKept> kept;                 // if the session is
};
/// Nothing: it makes no sense. `asked_to_keep`: the client wished that.
[[nodiscard]] std::optional<WelcomeRead> read_welcome(Bytes body, bool asked_to_keep);

/// The device of an older service, which has no number and no name: the welcome itself says what it allows.
[[nodiscard]] DeviceFacts only_device(const Welcome& said, const WelcomeMore& more, const WelcomeLast& last);

}  // namespace fairlead::datapath::command
