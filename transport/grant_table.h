// What peers may reach through one device, and the fence between those who revoke and the threads that move bytes.
//
// Peers name a byte by (key, address); addresses count from 0 at the grant's first byte, keys are 64 random bits that
// are never used twice. A key is good for connections of its own domain alone: to others it is unknown.
//
// Threads: those of GrantTable are any. A GrantReader is one endpoint's, whose driving thread alone uses it. What
// find() returns inside a Section stays granted until the Section ends; revoke() waits for the Sections that it meets,
// at most one system call each, never for a whole transfer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fairlead/memory.h"
#include "transport/memory.h"

namespace fairlead::datapath {

/// Which connections a grant is for, by number; the device's own is 0.
using DomainNumber = std::uint64_t;

class GrantTable {
 public:
  /// `by_cpu_only`: see Reader::is_by_cpu_only().
  [[nodiscard]] Grant grant(std::span<std::byte> bytes, Access access, DomainNumber domain = 0,
                            bool by_cpu_only = false);
  void revoke(const Grant& grant) noexcept;
  [[nodiscard]] std::size_t size() const noexcept;

  class Reader;

 private:
  struct Entry {
    std::span<std::byte> bytes;
    Access access;
    DomainNumber domain;
    bool by_cpu_only;
  };
  // A reader's is odd inside its Section. Entered before find() takes the mutex: so revoke(), having erased under the
  // mutex, sees odd if a Section may hold the bytes.
  using Activity = std::atomic<std::uint32_t>;

  mutable std::mutex mutex_;                          // guards what follows
  std::unordered_map<std::uint64_t, Entry> entries_;  // by key
  std::vector<std::shared_ptr<Activity>> readers_;
};

class GrantTable::Reader {
 public:
  /// The table outlives it.
  explicit Reader(GrantTable& table);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  class Section {
   public:
    explicit Section(Reader& reader) noexcept;
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Activity& activity_;
  };

  /// The bytes, or nothing if the key is unknown in `domain`, any byte lies outside, or `want` was not granted.
  [[nodiscard]] std::optional<std::span<std::byte>> find(DomainNumber domain, std::uint64_t key, std::uint64_t address,
                                                         std::uint64_t length, Access want) const noexcept;
  /// Whether whoever granted it said that only this process's own instructions read it. False: it is not granted.
  [[nodiscard]] bool is_by_cpu_only(std::uint64_t key) const noexcept;

 private:
  GrantTable& table_;
  const std::shared_ptr<Activity> activity_ = std::make_shared<Activity>(0);
};

using GrantReader = GrantTable::Reader;

}  // namespace fairlead::datapath
