// What a tenant pays for and a session has, counted where its commands run: in this process, or in another that shares
// the page these lie on.
//
// Threads and processes: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "datapath/command/wire.h"

namespace fairlead::datapath::command {

/// Of a tenant at one device, over all its sessions.
///
/// What memory they have stands in slots: a process has one of its own, and nobody else writes there. So whenever a
/// process ends, also in the middle of this, what it had is what its slot says. One that was taken over may write over
/// all of a tenant's page: what is nobody's is as it was when a process ends (TenantAccount).
struct DeviceMeter {
  static constexpr std::size_t kSlots = 1024;
  static constexpr std::size_t kThreads = 0;  // the slot of all that run in the service's process

  /// True: there is room, and so many bytes are taken of it. Claimed first and looked then: of two at the same moment
  /// both may be refused for the other, and never are both granted too much. `most` 0: there is no limit.
  [[nodiscard]] bool reserve_memory(std::uint64_t bytes, std::uint64_t most, std::size_t slot = kThreads) noexcept {
    if (most != 0 && bytes > most) return false;
    slots[slot].fetch_add(bytes);
    if (most == 0 || memory() <= most) return true;
    slots[slot].fetch_sub(bytes);
    return false;
  }
  void give_back(std::uint64_t bytes, std::size_t slot = kThreads) noexcept { slots[slot].fetch_sub(bytes); }
  [[nodiscard]] std::uint64_t memory() const noexcept {
    std::uint64_t all = 0;
    for (const auto& slot : slots) all += slot.load();
    return all;
  }

  std::atomic<std::uint64_t> bytes_in{0}, bytes_out{0};
  std::array<std::atomic<std::uint64_t>, kSlots> slots{};
};

/// Of a tenant, whichever devices there are.
struct TenantMeter {
  std::atomic<std::uint64_t> most_memory{0};  // of each device; 0: no limit
  std::atomic<std::uint64_t> rejections{0};
  std::array<DeviceMeter, kMaxDevices> devices{};
};

/// Of one session: for whoever says what it did when its process has ended, and what its process is to know meanwhile.
struct SessionMeter {
  std::atomic<std::uint64_t> sequence{0};  // of the command that runs, or ran last
  std::atomic<std::uint32_t> channel{0};   // of that
  std::atomic<bool> has_news{false};       // the service has more for it than it was given
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share them");

}  // namespace fairlead::datapath::command
