// What peers may reach through one device, and the fence between those who revoke and the thread that moves bytes.
//
// Peers name a byte by (key, address); addresses count from 0 at the grant's first byte, keys are 64 random bits that
// are never used twice.
//
// Threads: grant and revoke from any thread. Section and find: the driving thread alone. What find() returns inside a
// Section stays granted until the Section ends; revoke() waits for the Section that it meets, at most one system call,
// never for a whole transfer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>

#include "fairlead/memory.h"
#include "transport/memory.h"

namespace fairlead::tcp_fallback {

class GrantTable {
 public:
  [[nodiscard]] datapath::Grant grant(std::span<std::byte> bytes, Access access);
  void revoke(const datapath::Grant& grant) noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

  class Section {
   public:
    explicit Section(GrantTable& table) noexcept;
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    GrantTable& table_;
  };

  /// The bytes, or nothing if the key is unknown, any byte lies outside, or `want` was not granted.
  [[nodiscard]] std::optional<std::span<std::byte>> find(std::uint64_t key, std::uint64_t address, std::uint64_t length,
                                                         Access want) const noexcept;

 private:
  struct Entry {
    std::span<std::byte> bytes;
    Access access;
  };

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Entry> entries_;  // by key; under mutex_
  // Odd inside a Section. Entered before find() takes the mutex: so revoke(), having erased under the mutex, sees odd
  // if a Section may hold the bytes.
  std::atomic<std::uint32_t> activity_{0};
};

}  // namespace fairlead::tcp_fallback
