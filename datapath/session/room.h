// How much of what was posted may be under way: transfers of one class, and the bytes of their messages.
//
// Posters count what they post; the driver counts what ended, elsewhere in memory, and posters look there only where
// what they saw last does not suffice. What is refused is never counted, so nobody is refused for it. Threads: as each
// function says.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/counter.h"

namespace fairlead::datapath {

class Room {
 public:
  enum class Full : std::uint8_t { kNo, kTransfers, kBytes };
  struct Limits {
    std::uint64_t transfers = 0, bytes = 0;
  };

  /// Any thread. kNo: one more is under way, with a message of `bytes`. One whose message is alone passes however large
  /// it is.
  [[nodiscard]] Full take(std::uint64_t bytes, const Limits& limits) noexcept {
    // Bytes first: those of one that is refused for its number are in the way of nobody who would not be, too.
    if (bytes != 0 && !take_of(posted_bytes_, seen_ended_bytes_, ended_bytes_, bytes, limits.bytes)) {
      return Full::kBytes;
    }
    if (take_of(posted_, seen_ended_, ended_, 1, limits.transfers)) return Full::kNo;
    if (bytes != 0) posted_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return Full::kTransfers;
  }
  /// The driver: one of those has ended.
  void end(std::uint64_t bytes) noexcept {
    ended_.add();
    ended_bytes_.add(bytes);
  }
  /// Any thread.
  [[nodiscard]] std::uint64_t under_way() const noexcept {
    const std::uint64_t ended = ended_.get(), posted = posted_.load(std::memory_order_relaxed);
    return posted - std::min(ended, posted);  // the end may be seen before the post
  }

 private:
  /// Where others have posted since, more may have ended than had been posted before.
  [[nodiscard]] static bool fits(std::uint64_t before, std::uint64_t ended, std::uint64_t more,
                                 std::uint64_t limit) noexcept {
    const std::uint64_t under_way = before - std::min(before, ended);
    return under_way == 0 || (under_way < limit && more <= limit - under_way);
  }
  static bool take_of(std::atomic<std::uint64_t>& posted, std::atomic<std::uint64_t>& seen, const Counter& ended,
                      std::uint64_t more, std::uint64_t limit) noexcept {
    // Acquired and released: who sees what another posted sees what had ended for that one to post it.
    std::uint64_t before = posted.load(std::memory_order_acquire);
    do {
      if (!fits(before, seen.load(std::memory_order_relaxed), more, limit)) {
        const std::uint64_t now = ended.get();
        seen.store(now, std::memory_order_relaxed);
        if (!fits(before, now, more, limit)) return false;
      }
    } while (!posted.compare_exchange_weak(before, before + more, std::memory_order_acq_rel));
    return true;
  }

  Counter ended_, ended_bytes_;
  // Posted; and ended, as posters saw it last.
  alignas(64) std::atomic<std::uint64_t> posted_{0};
  std::atomic<std::uint64_t> posted_bytes_{0}, seen_ended_{0}, seen_ended_bytes_{0};
};

}  // namespace fairlead::datapath
