// The descriptors that the process of a session begins with.
#pragma once

namespace fairlead::datapath::command {

inline constexpr int kInheritedSocket = 3;   // frames
inline constexpr int kInheritedTenant = 4;   // the page of TenantMeter
inline constexpr int kInheritedSession = 5;  // the page of SessionMeter
inline constexpr int kInheritedMemory = 6;   // by which the descriptor for FrameType::kWindow comes
inline constexpr int kInheritedEnd = 7;

}  // namespace fairlead::datapath::command
