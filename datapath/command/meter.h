// What a tenant pays for and a session has, counted where its commands run: in this process, or in another that shares
// the page these lie on.
//
// Threads and processes: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace fairlead::datapath::command {

/// Of a tenant, over all its sessions.
struct TenantMeter {
  /// True: there is room, and so many bytes are taken of it.
  [[nodiscard]] bool reserve_memory(std::uint64_t bytes) noexcept {
    const std::uint64_t most = most_memory.load(std::memory_order_relaxed);
    std::uint64_t now = memory.load(std::memory_order_relaxed);
    do {
      if (most != 0 && (bytes > most || now > most - bytes)) return false;
    } while (!memory.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  void give_back(std::uint64_t bytes) noexcept { memory.fetch_sub(bytes, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> most_memory{0};  // 0: no limit
  std::atomic<std::uint64_t> memory{0}, bytes_in{0}, bytes_out{0}, rejections{0};
};

/// Of one session, for whoever cleans up after a process that has ended in the middle.
struct SessionMeter {
  std::atomic<std::uint64_t> memory{0};    // of its tenant's
  std::atomic<std::uint64_t> sequence{0};  // of the command that runs, or ran last
  std::atomic<std::uint32_t> channel{0};   // of that
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share them");

}  // namespace fairlead::datapath::command
