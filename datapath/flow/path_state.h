// How far a path is, and what can happen to it.
//
//   kNone --open--> kSettingUp --proved here--> kProved --and there--> kInUse
//   kProved, kInUse --died--> kClosing --drained, active--> kFenced --FenceAck--> kNone
//   kClosing --drained and fenced, passive--> kNone;  kSettingUp --given up--> kNone
//
// A path that is set up beside the one in use waits in kProved until that one is fenced, and may be given up there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fairlead::datapath {

enum class PathState : std::uint8_t { kNone, kSettingUp, kProved, kInUse, kClosing, kFenced };
inline constexpr std::size_t kPathStates = 6;
enum class PathEvent : std::uint8_t {
  kOffer,
  kAnswer,
  kConnected,
  kPeerReady,
  kPeerDown,
  kDown,
  kTimeout,
  kFence,
  kFenceAck,
  kDrained,
  kShut,
  kBetter  // another is proved beside it, and takes over
};
inline constexpr std::size_t kPathEvents = 12;
[[nodiscard]] std::string_view to_string(PathState state) noexcept;
[[nodiscard]] std::string_view to_string(PathEvent event) noexcept;

}  // namespace fairlead::datapath
