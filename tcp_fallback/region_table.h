// The registered memory of one transport, and the fence between those who deregister and the thread that moves bytes.
//
// Peers name a byte by (key, address); addresses count from 0 at the region's first byte, keys are 64 random bits that
// are never used twice.
//
// Threads: add and remove from any thread. Section and find: the driving thread alone. What find() returns inside a
// Section stays registered until the Section ends; remove() waits for the Section that it meets, at most one system
// call, never for a whole transfer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "fairlead/memory.h"
#include "transport/transport.h"

namespace fairlead::tcp_fallback {

class RegionTable {
 public:
  [[nodiscard]] datapath::Registration add(std::span<std::byte> bytes, Access access);
  void remove(const datapath::Registration& registration) noexcept;

  class Section {
   public:
    explicit Section(RegionTable& table) noexcept;
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    RegionTable& table_;
  };

  /// The bytes, or nothing if the key is unknown, any byte lies outside, or `want` was not granted.
  [[nodiscard]] std::optional<std::span<std::byte>> find(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                                         Access want) const noexcept;

 private:
  struct Region {
    std::span<std::byte> bytes;
    Access access;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Region> regions_;  // under mutex_
  // Odd inside a Section. Entered before find() takes the mutex: so remove(), having erased under the mutex, sees odd
  // if a Section may hold the region.
  std::atomic<std::uint32_t> activity_{0};
};

}  // namespace fairlead::tcp_fallback
