// The memory that two ends share: four channels, and what each end says of itself.
//
// The active end makes it, on a memfd that is sealed against every change of its size: a mapping of it cannot fault,
// whatever the other end does. The passive end looks at the seals and the size before it maps anything.
// A child of fork() does not have it.
// Threads: open() and the mapping's life are the driving thread's; what is in it is atomic, or a channel's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/system/shared_memory.h"
#include "base/unique_fd.h"
#include "fairlead/status.h"
#include "shm/ring/channel.h"

namespace fairlead::shm {

inline constexpr std::size_t kLine = 64;
using Requests = ChannelMemory<256, 128 * 1024>;
using Responses = ChannelMemory<64, 64 * 1024>;
/// Requests that one end may leave unanswered.
inline constexpr std::uint32_t kDepth = 256;

/// Written by one end, read by the other.
struct Side {
  struct alignas(kLine) Answered {
    Consumed requests;                       // of the other's
    std::atomic<std::uint64_t> ended{0};     // requests of the other's that have ended, from its first on
    std::atomic<std::uint64_t> progress{0};  // rises while a long one is carried out
  } answered;
  struct alignas(kLine) {
    Consumed responses;
  } heard;
  struct alignas(kLine) {
    std::atomic<std::uint32_t> sleeping{0};  // 1: wants to be woken; whoever wakes it makes it 0
  } rest;
  struct alignas(kLine) {
    std::atomic<std::uint32_t> closed{0};  // 1: this end's memory is no longer to be read, nor its requests carried out
    std::atomic<std::uint32_t> pulls{0};   // 1: this end can read the other's memory
    std::atomic<std::uint32_t> maps{0};    // 1: this end maps arenas that the other gives it
  } state;
  struct alignas(kLine) {
    std::atomic<std::uint64_t> told{0};    // packets about arenas of this end's that were sent (arena/packet.h)
    std::atomic<std::uint64_t> taken{0};   // of the other end's such packets: those that were carried out
    std::atomic<std::uint64_t> mapped{0};  // a bit for each arena of the other end's that is mapped here
  } arenas;
  // Of reads that the other end copies by itself, by their number: 1 once what they read was withdrawn.
  alignas(kLine) std::array<std::atomic<std::uint8_t>, kDepth> withdrawn{};
};

[[nodiscard]] inline bool has_closed(const Side& side) noexcept {
  return side.state.closed.load(std::memory_order_acquire) != 0;
}

struct Shared {
  Side sides[2];         // of the active end, of the passive end
  Requests requests[2];  // which that end makes
  Responses responses[2];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Segment {
 public:
  Segment() noexcept = default;

  /// `descriptor`: to be sent, then closed. Errors: kResourceExhausted.
  static Result<Segment> make(UniqueFd& descriptor);
  /// Errors: kInvalidArgument (not such memory as make() makes), kResourceExhausted.
  static Result<Segment> adopt(const UniqueFd& descriptor);

  explicit operator bool() const noexcept { return memory_.get() != nullptr; }
  [[nodiscard]] Shared& operator*() const noexcept { return *reinterpret_cast<Shared*>(memory_.get()); }
  [[nodiscard]] Shared* operator->() const noexcept { return &**this; }
  /// Not in a child of fork(), which has the object but not the memory.
  [[nodiscard]] bool is_mine() const noexcept { return memory_.is_mine(); }

 private:
  explicit Segment(SharedMapping memory) noexcept : memory_(std::move(memory)) {}

  SharedMapping memory_;
};

}  // namespace fairlead::shm
