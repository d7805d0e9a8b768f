// One direction of slots with their payload: a ring in shared memory with one producer and one consumer, no locks.
//
// Where the two are is known to each by its own count. What the other end says of itself is read once and used only
// within bounds: a producer that lies makes the consumer read garbage out of the ring, a consumer that lies is caught
// (`lied`), and neither makes this end touch a byte outside of the ring.
// Shape: kSlots lines, then kData bytes in which payload lies in one piece, from multiples of 64 on. Both ends work out
// from the sizes alone where the next one begins.
// Ownership: the memory is the segment's (segment.h). Threads: each end is its driving thread's.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/system/shared_lines.h"
#include "shm/ring/slot.h"

namespace fairlead::shm {

/// Written by the consumer alone, for the producer: up to where slots and data may be used again.
struct Consumed {
  std::atomic<std::uint64_t> slots{0};
  std::atomic<std::uint64_t> data{0};
};

template <std::size_t kSlotCount, std::size_t kDataBytes>
struct alignas(kSlotBytes) ChannelMemory {
  static_assert(std::has_single_bit(kSlotCount) && std::has_single_bit(kDataBytes));
  static_assert(kDataBytes >= 2 * kMaxPiece, "an empty ring must take any piece, wherever it begins");
  static constexpr std::size_t kSlots = kSlotCount, kData = kDataBytes;
  std::array<Slot, kSlots> slots;
  std::array<std::byte, kData> data;
};

/// Where a payload of so many bytes begins that comes next after `position`; both count from 0 and never wrap.
template <std::size_t kData>
constexpr std::uint64_t place_of(std::uint64_t position, std::uint32_t bytes) noexcept {
  const std::uint64_t begin = (position + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
  const std::uint64_t offset = begin % kData;
  return offset + bytes > kData ? begin + kData - offset : begin;
}

template <typename Memory>
constexpr std::uint32_t stamp_of(std::uint64_t position) noexcept {
  return static_cast<std::uint32_t>(position / Memory::kSlots) + 1;
}

template <typename Memory>
class Producer {
 public:
  Producer() = default;
  Producer(Memory* memory, const Consumed* consumed) noexcept : memory_(memory), consumed_(consumed) {}

  /// Whether another slot fits, with this much payload that does not fit inside it. `bytes` <= kMaxPiece.
  [[nodiscard]] bool has_room(std::uint32_t bytes) noexcept {
    if (fits(bytes)) return true;
    look();
    return fits(bytes);
  }
  /// Where the payload of the next slot goes that does not fit inside it. There is room. push() it then.
  [[nodiscard]] std::byte* place(std::uint32_t bytes) noexcept {
    return memory_->data.data() + place_of<Memory::kData>(data_, bytes) % Memory::kData;
  }
  /// There is room. The payload is in place.
  void push(const Slot& slot, std::uint32_t ended = 0) noexcept {
    if (!slot.fits_inside()) {
      const std::byte* const payload = place(slot.bytes);
      for (std::uint32_t i = 0; slot.bytes <= kFewBytes && i < slot.bytes; i += kSlotBytes) hand_over(payload + i);
      data_ = place_of<Memory::kData>(data_, slot.bytes) + slot.bytes;
    }
    Slot& there = memory_->slots[slots_ % Memory::kSlots];
    slot.put(there, stamp_of<Memory>(slots_), ended);
    hand_over(&there);
    ++slots_;
  }
  /// The consumer said that it has consumed what never was, or less than before.
  [[nodiscard]] bool lied() const noexcept { return lied_; }
  /// Slots that were pushed.
  [[nodiscard]] std::uint64_t pushed() const noexcept { return slots_; }

 private:
  static constexpr std::uint32_t kFewBytes = 256;  // whose time is that of their first lines

  [[nodiscard]] bool fits(std::uint32_t bytes) const noexcept {
    if (lied_ || slots_ - free_slots_ == Memory::kSlots) return false;
    return bytes == 0 || place_of<Memory::kData>(data_, bytes) + bytes - free_data_ <= Memory::kData;
  }
  void look() noexcept {
    const std::uint64_t slots = consumed_->slots.load(std::memory_order_acquire);
    const std::uint64_t data = consumed_->data.load(std::memory_order_acquire);
    (void)tell_tsan_of_acquire(true);
    if (slots - free_slots_ > slots_ - free_slots_ || data - free_data_ > data_ - free_data_) {
      lied_ = true;
      return;
    }
    free_slots_ = slots;
    free_data_ = data;
  }

  Memory* memory_ = nullptr;
  const Consumed* consumed_ = nullptr;
  std::uint64_t slots_ = 0, data_ = 0;
  std::uint64_t free_slots_ = 0, free_data_ = 0;  // as the consumer said last
  bool lied_ = false;
};

template <typename Memory>
class Consumer {
 public:
  Consumer() = default;
  Consumer(Memory* memory, Consumed* consumed) noexcept : memory_(memory), consumed_(consumed) {}

  [[nodiscard]] bool ready() const noexcept {
    return tell_tsan_of_acquire(
        std::atomic_ref(memory_->slots[slots_ % Memory::kSlots].stamp).load(std::memory_order_acquire) ==
        stamp_of<Memory>(slots_));
  }
  /// The next slot, copied. ready() said so.
  [[nodiscard]] Slot next() const noexcept {
    Slot slot;
    std::memcpy(&slot, &memory_->slots[slots_ % Memory::kSlots], sizeof slot);
    return slot;
  }
  /// Payload of that slot which does not lie inside it; its producer may still change it. `bytes` <= kMaxPiece.
  [[nodiscard]] const std::byte* payload(const Slot& slot) const noexcept {
    return memory_->data.data() + place_of<Memory::kData>(data_, slot.bytes) % Memory::kData;
  }
  /// Done with it. The producer is told by publish().
  void pop(const Slot& slot) noexcept {
    if (!slot.fits_inside()) data_ = place_of<Memory::kData>(data_, slot.bytes) + slot.bytes;
    ++slots_;
  }
  /// Of the ring that is free again the producer does not know an eighth. Of less it need not: with that it has room
  /// for any slot once all is consumed.
  [[nodiscard]] bool owes_much() const noexcept {
    return slots_ - told_ >= Memory::kSlots / 8 || data_ - told_data_ >= Memory::kData / 8;
  }
  /// Returns whether there was anything to tell.
  bool publish() noexcept {
    if (slots_ == told_) return false;
    told_ = slots_;
    told_data_ = data_;
    tell_tsan_of_release();
    consumed_->data.store(data_, std::memory_order_release);
    consumed_->slots.store(slots_, std::memory_order_release);
    return true;
  }

 private:
  Memory* memory_ = nullptr;
  Consumed* consumed_ = nullptr;
  std::uint64_t slots_ = 0, data_ = 0;
  std::uint64_t told_ = 0, told_data_ = 0;  // of them, as the producer knows them
};

}  // namespace fairlead::shm
