// What queues and queue pairs know of the device that they belong to: its limits, its events, its ports by GID.
//
// Owns nothing of theirs. Threads: any, but where a function says otherwise.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fairlead/status.h"
#include "verbs/soft/queues/events.h"
#include "verbs/soft/queues/profile.h"

namespace fairlead::soft {

class ProgressContext;
struct PortSlot;

inline constexpr int kMaxQueuePairWrs = 16384;
inline constexpr int kMaxSegments = 32;
inline constexpr int kMaxCompletions = 1 << 20;
inline constexpr int kMaxReads = 128;
inline constexpr std::uint32_t kMaxInline = 1024;
inline constexpr std::uint32_t kMaxMessage = 1U << 30;  // its PSNs fill at most half the window at MTU 256

class DeviceBase : public verbs_context {
 public:
  DeviceBase(ProgressContext& progress, Profile profile) : verbs_context{}, progress_(progress), profile_(profile) {}
  DeviceBase(const DeviceBase&) = delete;
  DeviceBase& operator=(const DeviceBase&) = delete;

  [[nodiscard]] ProgressContext& progress() noexcept { return progress_; }
  [[nodiscard]] AsyncQueue& async_events() noexcept { return async_events_; }
  [[nodiscard]] Profile profile() const noexcept { return profile_; }
  /// Zero GID at an empty index.
  [[nodiscard]] virtual ibv_gid_entry gid(std::uint32_t index) const noexcept = 0;
  /// Binds the port of a GID if it is not yet. It may wait for other processes, and takes the progress context's lock
  /// only when it does not.
  [[nodiscard]] virtual Status bind_port(std::uint32_t index) = 0;
  /// The port of a GID, after bind_port(). The progress context's lock is held.
  virtual Result<PortSlot*> port_of_gid(std::uint32_t index) = 0;
  [[nodiscard]] virtual ibv_mtu active_mtu() const noexcept = 0;

 protected:
  ~DeviceBase() = default;

 private:
  ProgressContext& progress_;
  AsyncQueue async_events_;
  const Profile profile_;
};

}  // namespace fairlead::soft
