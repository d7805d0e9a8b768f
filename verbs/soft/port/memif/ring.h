// The two ends of a ring: who fills buffers, and who empties them.
//
// Who is master finds the buffers by the slave's descriptors, each of which is read once and must lie in a region. The
// slave made them, and knows where they are without being told; what the master does to its descriptors changes
// nothing. Each end has its own index in its own memory, and takes the other's only where a ring can be so far. What
// cannot be is a fault: from then on the end is of no use, and fault() says what the peer did. Threads: one at a time
// for each end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "verbs/soft/port/memif/layout.h"
#include "verbs/soft/port/memif/regions.h"

namespace fairlead::soft::memif {

/// A ring, and where its buffers are.
struct RingPlace {
  RingView view;
  unsigned log2_slots = 0;
  Direction direction = Direction::kToMaster;
  const Regions* regions = nullptr;  // outlives the ends
  // Of the slave: buffers of its own, one a slot, in region 0.
  std::byte* buffers = nullptr;
  std::uint32_t buffers_offset = 0;
  std::uint32_t buffer_bytes = 0;
};

class RingEnd {
 public:
  /// Null: none so far.
  [[nodiscard]] const char* fault() const noexcept { return fault_; }

 protected:
  RingEnd() noexcept = default;
  explicit RingEnd(const RingPlace& place);

  [[nodiscard]] bool to_master() const noexcept { return place_.direction == Direction::kToMaster; }
  [[nodiscard]] bool owns_buffers() const noexcept { return place_.buffers != nullptr; }
  [[nodiscard]] std::size_t slot(std::uint16_t index) const noexcept { return index & (slots_ - 1U); }
  /// Of one's own, as the slave made it.
  [[nodiscard]] Descriptor own_descriptor(std::size_t slot) const noexcept {
    return {0, 0, place_.buffer_bytes, place_.buffers_offset + static_cast<std::uint32_t>(slot * place_.buffer_bytes),
            0};
  }
  [[nodiscard]] std::byte* own_buffer(std::size_t slot) const noexcept {
    return place_.buffers + slot * place_.buffer_bytes;
  }

  RingPlace place_;
  std::uint16_t slots_ = 0;
  const char* fault_ = nullptr;
};

class Sender : public RingEnd {
 public:
  Sender() noexcept = default;
  /// The slave writes its descriptors.
  explicit Sender(const RingPlace& place);

  /// How many slots can be filled, of so many that are wanted.
  [[nodiscard]] std::size_t free(std::size_t wanted) noexcept;
  /// The buffer `ahead` slots from the next one, which is free, and its size; null: a fault.
  [[nodiscard]] std::byte* buffer(std::size_t ahead, std::uint32_t& bytes) noexcept;
  /// What is in that buffer: so many bytes of a frame, which may go on in the next one.
  void fill(std::size_t ahead, std::uint32_t bytes, bool goes_on) noexcept;
  /// Gives the peer so many slots. True: it wants to be woken.
  [[nodiscard]] bool publish(std::size_t count) noexcept;
  /// Copies a frame into as many buffers as it takes, from `ahead` on. How many that were; 0: there are too few now.
  [[nodiscard]] std::size_t copy(std::size_t ahead, std::span<const std::byte> frame) noexcept;

 private:
  /// What the slave gave for a slot, as it was read last.
  struct Given {
    std::uint16_t region = 0;
    std::byte* buffer = nullptr;
  };
  void fetch_next() const noexcept;

  std::uint16_t sent_ = 0;
  std::uint16_t free_ = 0;    // at least
  std::vector<Given> given_;  // of the master: by slots
};

class Receiver : public RingEnd {
 public:
  /// Longer ones are dropped.
  static constexpr std::size_t kMostFrame = 9216;

  Receiver() noexcept = default;
  /// The slave gives its buffers away.
  explicit Receiver(const RingPlace& place);

  /// Fills at most frames.size() and returns how many. They stay valid until the next call. A frame of several buffers
  /// comes as a copy.
  [[nodiscard]] std::size_t take(std::span<std::span<const std::byte>> frames) noexcept;
  /// Whether there is something to take.
  [[nodiscard]] bool has_more() noexcept { return available() != 0; }
  /// From here on the peer wakes, or no longer. A peer that does not look in between may miss the change for a moment.
  void want_to_be_woken(bool wanted) noexcept {
    place_.view.flags().store(wanted ? 0 : RingView::kMaskInterrupt, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::size_t available() noexcept;
  void release() noexcept;
  [[nodiscard]] const std::byte* resolve(std::size_t slot, const Descriptor& descriptor) noexcept;
  [[nodiscard]] std::span<const std::byte> join(std::size_t available) noexcept;

  std::uint16_t taken_ = 0;
  std::uint16_t released_ = 0;
  std::vector<const std::byte*> places_;  // of the master: by slots, where the last frame was, as the next may be
  std::vector<std::byte> joined_;
};

}  // namespace fairlead::soft::memif
