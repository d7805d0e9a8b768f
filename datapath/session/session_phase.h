// How far a session is, and what can happen to it.
//
//   kResolving --address--> kConnecting --stands--> kHello --hello--> kOpen --close asked--> kClosing
//   any of them --fails, or nothing is left to be done--> kDraining --drained--> kClosed
// From kOpen on the control connection may break and another take its place, which is no phase of its own: data flows
// meanwhile (control_link.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fairlead::datapath {

/// kOpen: greeted. Whether data flows is the paths' to say.
enum class SessionPhase : std::uint8_t { kResolving, kConnecting, kHello, kOpen, kClosing, kDraining, kClosed };
inline constexpr std::size_t kSessionPhases = 7;

enum class SessionEvent : std::uint8_t {
  kConnected,   // the control connection stands
  kHello,       // the peer's
  kUsable,      // a path is in use
  kCloseAsked,  // by the application
  kGoodbye,     // of the peer
  kHungUp,      // the control connection ended
  kResumed,     // another took its place
  kFailed,      // for any reason
  kDrained
};
inline constexpr std::size_t kSessionEvents = 9;

[[nodiscard]] constexpr std::string_view to_string(SessionPhase phase) noexcept {
  constexpr std::array<std::string_view, kSessionPhases> kNames = {"resolving", "connecting", "hello", "open",
                                                                   "closing",   "draining",   "closed"};
  return kNames[static_cast<std::size_t>(phase)];
}

[[nodiscard]] constexpr std::string_view to_string(SessionEvent event) noexcept {
  constexpr std::array<std::string_view, kSessionEvents> kNames = {
      "connected", "hello", "usable", "close asked", "goodbye", "hung up", "resumed", "failed", "drained"};
  return kNames[static_cast<std::size_t>(event)];
}

}  // namespace fairlead::datapath
