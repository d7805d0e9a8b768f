// Arenas whose owner is gone, kept for the next: populated, so that the kernel need not find and clear pages again,
// which in a virtual machine costs many times what the bytes cost to clear.
//
// What was left in them nobody sees: a thread clears them behind whoever gave them, as long as nothing else wants its
// core, and take() clears what that had not come to. Kept are at most so many bytes, the latest; one that nobody took
// for a while goes back to the system.
// Threads: all members from any. No lock is held while memory is cleared or unmapped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "memreg/arena.h"

namespace fairlead::memreg {

class SpareArenas {
 public:
  static constexpr std::size_t kLeast = std::size_t{1} << 20;  // bytes of an arena that is worth it

  struct Settings {
    std::uint64_t most = 0;  // bytes; 0: none is kept
    std::chrono::milliseconds idle = std::chrono::minutes(5);
  };
  struct Stats {
    std::uint64_t bytes = 0;          // kept now,
    std::uint64_t cleared_bytes = 0;  // and of these, ready to be taken
    std::uint64_t taken_bytes = 0;    // ever
  };

  explicit SpareArenas(const Settings& settings) : settings_(settings) {}
  SpareArenas(const SpareArenas&) = delete;
  SpareArenas& operator=(const SpareArenas&) = delete;
  ~SpareArenas() = default;

  /// All 0, populated, of `bytes` rounded up to pages. Of those that are large enough the smallest, whose rest goes
  /// back to the system; nothing if there is none, or only such as are more than twice as large. Returns when it is
  /// cleared.
  [[nodiscard]] std::optional<Arena> take(std::size_t bytes);
  /// An arena that is private and populated, and that nobody else touches any more.
  void give(Arena arena);
  /// Gives the longest kept back to the system until so many bytes are left.
  void trim(std::uint64_t most);
  [[nodiscard]] Stats stats() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    Arena arena;
    Clock::time_point since;
    std::size_t cleared = 0;  // bytes, from the front; of whoever clears it, while that is so
    bool busy = false;        // the thread clears it
    bool wanted = false;      // somebody takes it out: the thread lets go of it after a piece
  };
  using List = std::list<Kept>;

  void run(const std::stop_token& stop);
  /// Clears the next one a little. Whether there was one. Under `lock`, which it leaves meanwhile.
  bool clear_some(std::unique_lock<std::mutex>& lock);
  /// When the first of them has been here long enough.
  [[nodiscard]] Clock::time_point next_end() const;
  /// Takes it out, once the thread has let go of it. Under `lock`, which it may leave meanwhile.
  List take_out(List::iterator kept, std::unique_lock<std::mutex>& lock);

  const Settings settings_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  List kept_;  // the longest kept first
  std::uint64_t bytes_ = 0, taken_bytes_ = 0, given_ = 0;
  std::jthread thread_;  // from the first give() on; last: it uses the rest
};

}  // namespace fairlead::memreg
