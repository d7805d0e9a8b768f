// Reads that peers carry out by themselves, so that who revokes what they read tells them to stop.
//
// A peer that has been told where the bytes lie looks at a flag before each piece that it copies and after it (one of
// Side::withdrawn). Nobody waits for it: it copies one piece more at most, and its read fails.
// Threads: any. Allocates only while more reads are open than ever before.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace fairlead::shm {

/// In shared memory: 1 once what is read was withdrawn.
using WithdrawnFlag = std::atomic<std::uint8_t>;

class PulledReads {
 public:
  /// Inside the Section in which `key` was found, so that who revokes it sees either no grant or the read.
  void open(std::uint64_t key, WithdrawnFlag& flag) {
    const std::lock_guard lock(mutex_);
    all_.push_back({key, &flag});
  }
  /// From now on nobody touches the flag.
  void close(const WithdrawnFlag& flag) noexcept {
    const std::lock_guard lock(mutex_);
    const auto it = std::ranges::find(all_, &flag, &Read::flag);
    if (it == all_.end()) return;
    *it = all_.back();
    all_.pop_back();
  }
  /// `key` is revoked, and no Section that may have found it is open.
  void withdraw(std::uint64_t key) noexcept {
    const std::lock_guard lock(mutex_);
    for (const Read& read : all_) {
      if (read.key == key) read.flag->store(1, std::memory_order_release);
    }
  }

 private:
  struct Read {
    std::uint64_t key = 0;
    WithdrawnFlag* flag = nullptr;
  };
  std::mutex mutex_;
  std::vector<Read> all_;  // under mutex_
};

}  // namespace fairlead::shm
