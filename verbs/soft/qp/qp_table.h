// The queue pairs of a domain by their numbers: one array access, no search.
//
// A number is a slot and a tag, mixed with a secret, so that it is not guessed, and a slot's next queue pair has
// another number: a late packet must not reach it. In a partition (port/shared_address.h) the upper byte is the
// partition's, so that whoever steers packets among processes can read it, and the rest is slot and tag. Beyond a
// partition's 8,192 queue pairs a table may go on with numbers that are of no partition, for addresses where nobody
// steers. Threads: under the domain's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace fairlead::soft {

class Qp;

class QpTable {
 public:
  explicit QpTable(std::uint64_t seed);

  /// Numbers from here on are of this partition, below kFirstFree; those that find no room in it are of none, if there
  /// may be such. Before the first add().
  static constexpr std::uint8_t kFirstFree = 250;
  void set_partition(std::uint8_t partition, bool beyond = false) noexcept;
  [[nodiscard]] bool in_partition(std::uint32_t number) const noexcept { return number >> 16 == partition_; }
  /// How many queue pairs there is room for.
  [[nodiscard]] std::size_t limit() const noexcept { return std::size_t{1} << (beyond_ ? kAllSlotBits : slot_bits_); }

  /// A number of its own for the queue pair; 0 where the table is full.
  [[nodiscard]] std::uint32_t add(Qp& qp);
  void remove(std::uint32_t number) noexcept;
  /// Null where no queue pair has it.
  [[nodiscard]] Qp* find(std::uint32_t number) const noexcept {
    const std::size_t slot = slot_of(number);
    return slot < slots_.size() && slots_[slot].number == number ? slots_[slot].qp : nullptr;
  }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (const Slot& slot : slots_) {
      if (slot.qp != nullptr) visit(*slot.qp);
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return used_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr unsigned kAllSlotBits = 16;
  // Four upper bytes that are of no partition: two bits of tag.
  static constexpr std::uint32_t kFree = std::uint32_t{kFirstFree} << 16;
  static constexpr std::uint32_t kFreeNumbers = 4U << 16;
  struct Slot {
    Qp* qp = nullptr;
    std::uint32_t number = 0;
    std::uint32_t next_free = kNone;
    std::uint8_t tag = 0;  // of its last number
  };

  /// Its index, or kNone.
  [[nodiscard]] std::uint32_t take_slot();
  [[nodiscard]] std::size_t slot_of(std::uint32_t number) const noexcept {
    if (beyond_ && number - kFree < kFreeNumbers) return ((number - kFree) ^ secret_) & ((1U << kAllSlotBits) - 1);
    return (number ^ secret_) & ((1U << slot_bits_) - 1);
  }
  [[nodiscard]] std::uint32_t number_of(std::uint32_t slot, std::uint32_t tag) const noexcept;

  std::mt19937_64 random_;
  std::uint32_t secret_;
  unsigned slot_bits_ = kAllSlotBits;
  unsigned tag_bits_ = 8;
  std::uint32_t partition_ = kNone;
  bool beyond_ = false;
  std::vector<Slot> slots_;
  // Of slots, by how long they are free; a list, so that remove() allocates nothing.
  std::uint32_t longest_free_ = kNone;
  std::uint32_t last_freed_ = kNone;
  std::size_t used_ = 0;
};

}  // namespace fairlead::soft
