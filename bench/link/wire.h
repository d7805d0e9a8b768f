// One direction of a link: what becomes of each frame that is offered to it, and when it leaves.
//
// A frame that is offered waits for the line while that is busy with earlier ones (rate), crosses (delay), and may be
// lost or held back for a while, so that later ones overtake it. Which frames that happens to follows from the seed and
// the number of the frame alone. Without reordering frames leave in the order in which they were offered. Owns the
// frames that are on their way. Threads: none. The time is an argument: of any one clock that does not go back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace fairlead::bench {

struct WireOptions {
  std::chrono::nanoseconds delay{0};
  std::uint64_t rate = 0;                  // bits a second; 0: a line that is never busy
  std::uint64_t queue_bytes = 1 << 20;     // that may wait for the line; a frame that finds more is dropped
  std::uint64_t held_bytes = 256 << 20;    // of frames on their way, in the memory of the program; the same
  double loss = 0;                         // of the frames, 0..1
  double reorder = 0;                      // of the frames, 0..1
  std::chrono::nanoseconds reorder_by{0};  // how much later than others such a frame leaves
  std::uint64_t seed = 1;
};

/// offered = left + lost + queue_full + no_room + those that are on their way.
struct WireCounts {
  std::uint64_t offered = 0;
  std::uint64_t offered_bytes = 0;  // on the line
  std::uint64_t left = 0;
  std::uint64_t lost = 0;
  std::uint64_t held_back = 0;   // to be overtaken
  std::uint64_t overtaken = 0;   // left after a frame that was offered later
  std::uint64_t queue_full = 0;  // dropped: the line was too busy
  std::uint64_t no_room = 0;     // dropped: the memory was full
};

class Wire {
 public:
  using Time = std::chrono::nanoseconds;

  explicit Wire(const WireOptions& options);

  /// A frame that takes `line_bytes` of the line's time. True: it leaves now, and is the caller's to pass on; what was
  /// due before it has to have been taken. False: it was copied to leave later, or dropped.
  [[nodiscard]] bool offer(Time now, std::span<const std::byte> frame, std::uint64_t line_bytes);

  /// The frame that is to leave next, if it is time; good until the next call.
  [[nodiscard]] std::optional<std::span<const std::byte>> take(Time now);
  /// When that will be; nothing: no frame is on its way.
  [[nodiscard]] std::optional<Time> next() const;

  [[nodiscard]] const WireCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::size_t on_their_way() const noexcept { return held_.size(); }

 private:
  struct Held {
    Time leaves;
    std::uint64_t number;
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size;
  };

  [[nodiscard]] bool chance(double of);
  void count_leaving(std::uint64_t number);
  static bool later(const Held& a, const Held& b) noexcept;

  const WireOptions options_;
  std::mt19937_64 random_;
  Time line_free_{0};
  std::vector<Held> held_;  // a heap: who leaves first is in front
  std::uint64_t held_bytes_ = 0;
  std::unique_ptr<std::byte[]> taken_;
  std::uint64_t last_left_ = 0;  // the greatest number of a frame that left; the first is 1
  WireCounts counts_;
};

}  // namespace fairlead::bench
