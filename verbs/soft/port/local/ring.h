// One direction of packets between two processes of a host: a ring of slots in memory that both map.
//
// Each end counts for itself. What the other one writes is read once and used within bounds: a producer that lies makes
// the consumer look at garbage, as a network may bring, and a consumer that lies is found out (`lied`).
// A slot carries a stamp that says by its value in which lap it was filled, so that one cache line tells that a packet
// is there, and how it begins. All memory is zero at first.
// A slot may refer to payload that stays where the producer's process has it. The slot says that it stands there: who
// of the two takes that away decides whether the payload was had or taken back.
// Threads: each end is used by one at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/system/shared_lines.h"
#include "verbs/soft/port/packet_port.h"
#include "verbs/soft/wire/headers.h"

namespace fairlead::soft::local {

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint32_t kSlots = 256;

/// Where payload lies in the producer's process: before the headers of a packet that refers to it.
struct Reference {
  static constexpr std::uint32_t kMostBytes = 256 << 10;
  std::uint64_t address;
  std::uint32_t bytes;
  std::uint32_t reserved;
};

struct alignas(kLine) Slot {
  static constexpr std::size_t kBytes = 68 * kLine;
  static constexpr std::size_t kHead = 16;
  static constexpr std::size_t kMostPacket = kBytes - kHead;
  static constexpr std::uint8_t kUnchecked = 1;  // flags: its last 4 bytes are no ICRC
  static constexpr std::uint8_t kRefers = 2;     // it begins with a Reference, and its payload lies there

  std::uint32_t stamp;
  std::uint16_t bytes;  // of the packet, BTH to ICRC
  std::uint16_t source_port;
  std::uint8_t traffic_class;
  std::uint8_t flags;
  std::array<std::byte, 2> reserved;
  std::uint32_t stands;  // of one that refers: 1 until the consumer has the payload or the producer took it back
  std::array<std::byte, kMostPacket> packet;

  /// It has not been taken yet.
  [[nodiscard]] bool still_stands() noexcept { return std::atomic_ref(stands).load(std::memory_order_relaxed) != 0; }
  /// True for one of the two ends, once.
  [[nodiscard]] bool take_reference() noexcept { return std::atomic_ref(stands).exchange(0) != 0; }
};
static_assert(sizeof(Slot) == Slot::kBytes && offsetof(Slot, packet) == Slot::kHead);
static_assert(Slot::kMostPacket >= kMostHeaderBytes + 4096 + kIcrcBytes);

struct Ring {
  alignas(kLine) std::atomic<std::uint32_t> taken;   // the consumer's: slots that may be filled anew
  alignas(kLine) std::atomic<std::uint32_t> sleeps;  // the consumer's: wake it once; who does takes it back
  std::array<Slot, kSlots> slots;
};

/// In which lap a slot is filled, and 1.
constexpr std::uint32_t stamp_of(std::uint32_t position) noexcept { return position / kSlots + 1; }

/// What its producer knows of a reference; of none all is 0.
struct Standing {
  const Route* owner = nullptr;  // of the queue pair whose packet it is
  Reference reference{};
};

class Producer {
 public:
  explicit Producer(Ring& ring) noexcept : ring_(&ring) {}

  [[nodiscard]] bool has_room() noexcept {
    if (filled_ - free_ < kSlots) return !lied_;
    const std::uint32_t taken = ring_->taken.load(std::memory_order_acquire);
    tell_tsan_of_acquire(true);
    lied_ = lied_ || taken - free_ > filled_ - free_;
    if (lied_) return false;
    free_ = taken;
    return filled_ - free_ < kSlots;
  }
  /// There is room: where the next packet goes, Slot::kMostPacket bytes.
  [[nodiscard]] std::byte* place() noexcept { return slot().packet.data(); }
  /// It is in place. What it refers to, if its flags say that it does, stands until it is taken or withdrawn.
  void push(std::uint16_t bytes, const Route& route, std::uint8_t flags, const Standing& refers = {}) noexcept {
    Slot& slot = this->slot();
    if ((flags & Slot::kRefers) != 0) {
      standing_[filled_ % kSlots] = {refers, filled_};
      refers_until_ = filled_ + 1;
      std::atomic_ref(slot.stands).store(1, std::memory_order_relaxed);
    }
    slot.bytes = bytes;
    slot.source_port = route.source_port;
    slot.traffic_class = route.traffic_class;
    slot.flags = flags;
    tell_tsan_of_release();
    std::atomic_ref(slot.stamp).store(stamp_of(filled_), std::memory_order_release);
    ++filled_;
  }
  /// After a burst: whether the consumer sleeps, and it is us who have to wake it.
  [[nodiscard]] bool must_wake() noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return ring_->sleeps.load(std::memory_order_relaxed) != 0 && ring_->sleeps.exchange(0) != 0;
  }
  /// It was not woken, and sleeps on.
  void owe_wake() noexcept { ring_->sleeps.store(1); }
  [[nodiscard]] bool lied() const noexcept { return lied_; }
  /// Takes back what stands and `which` answers true for. How many references the consumer had not taken. One that says
  /// to have taken more than it has is believed: what it then copies too late is its own loss.
  template <typename Which>
  std::size_t withdraw(Which&& which) noexcept {
    std::size_t count = 0;
    if (static_cast<std::int32_t>(refers_until_ - ring_->taken.load(std::memory_order_acquire)) <= 0) return count;
    for (std::uint32_t i = 0, laps = filled_ - free_; i < laps; ++i) {
      const std::uint32_t at = free_ + i;
      const auto& [standing, position] = standing_[at % kSlots];
      if (position == at && standing.reference.bytes != 0 && which(standing) && slot(at).take_reference()) ++count;
    }
    return count;
  }

 private:
  [[nodiscard]] Slot& slot(std::uint32_t position) noexcept { return ring_->slots[position % kSlots]; }
  [[nodiscard]] Slot& slot() noexcept { return slot(filled_); }

  Ring* ring_;
  std::array<std::pair<Standing, std::uint32_t>, kSlots> standing_{};  // with its position
  std::uint32_t refers_until_ = 0;                                     // the last reference's position, and 1
  std::uint32_t filled_ = 0;
  std::uint32_t free_ = 0;  // what the consumer had taken when that was looked at
  bool lied_ = false;
};

class Consumer {
 public:
  explicit Consumer(Ring& ring) noexcept : ring_(&ring) {}

  [[nodiscard]] bool ready() const noexcept {
    return tell_tsan_of_acquire(std::atomic_ref(slot().stamp).load(std::memory_order_acquire) == stamp_of(taken_));
  }
  struct Referred {
    Slot* slot = nullptr;  // null: the packet carries its payload
    Reference reference{};
  };
  /// The next packet, which ready() told of; false: it is none, and passed over. Its bytes stay until release().
  [[nodiscard]] bool take(RxPacket& packet, Referred& referred) noexcept {
    Slot& slot = this->slot();
    const std::uint16_t bytes = std::atomic_ref(slot.bytes).load(std::memory_order_relaxed);
    const std::size_t before = (slot.flags & Slot::kRefers) != 0 ? sizeof(Reference) : 0;
    ++taken_;
    if (bytes < before + Bth::kBytes + kIcrcBytes || bytes > Slot::kMostPacket) return false;
    if (before != 0) {
      std::memcpy(&referred.reference, slot.packet.data(), before);
      if (referred.reference.bytes == 0 || referred.reference.bytes > Reference::kMostBytes) return false;
      referred.slot = &slot;
    }
    packet.bytes = std::span(slot.packet).first(bytes).subspan(before);
    packet.source_port = slot.source_port;
    packet.traffic_class = slot.traffic_class;
    packet.unchecked = (slot.flags & Slot::kUnchecked) != 0;
    return true;
  }
  /// What was taken is not looked at any more.
  void release() noexcept {
    if (told_ == taken_) return;
    told_ = taken_;
    tell_tsan_of_release();
    ring_->taken.store(taken_, std::memory_order_release);
  }
  /// Before the last look: from here on the producer wakes us, once.
  void sleep() noexcept {
    ring_->sleeps.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with must_wake()'s
  }
  /// It looks by itself again.
  void wake() noexcept {
    if (ring_->sleeps.load(std::memory_order_relaxed) != 0) ring_->sleeps.store(0, std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] Slot& slot() noexcept { return ring_->slots[taken_ % kSlots]; }
  [[nodiscard]] const Slot& slot() const noexcept { return ring_->slots[taken_ % kSlots]; }

  Ring* ring_;
  std::uint32_t taken_ = 0;
  std::uint32_t told_ = 0;
};

}  // namespace fairlead::soft::local
