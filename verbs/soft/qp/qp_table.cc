#include "verbs/soft/qp/qp_table.h"

namespace fairlead::soft {
namespace {

constexpr std::uint32_t kNumberMask = 0xffffff;
constexpr unsigned kPartitionShift = 16;
constexpr unsigned kPartitionSlotBits = 13;
constexpr unsigned kPartitionTagBits = kPartitionShift - kPartitionSlotBits;

// 0 and 1 are management's, the last is multicast's (IBTA volume 1, 3.5.3 and 10.5).
bool reserved(std::uint32_t number) noexcept { return number < 2 || number == kNumberMask; }

}  // namespace

QpTable::QpTable(std::uint64_t seed) : random_(seed), secret_(random_() & kNumberMask) {}

void QpTable::set_partition(std::uint8_t partition, bool beyond) noexcept {
  slot_bits_ = kPartitionSlotBits;
  tag_bits_ = kPartitionTagBits;
  partition_ = partition;
  beyond_ = beyond;
  secret_ = (secret_ & ((1U << kPartitionShift) - 1)) | std::uint32_t{partition} << kPartitionShift;
}

std::uint32_t QpTable::take_slot() {
  // A fresh slot before one that was used: the longer a number rests, the fewer packets for its last owner still come.
  if (slots_.size() < limit()) {
    slots_.push_back({.tag = static_cast<std::uint8_t>(random_())});
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t index = longest_free_;
  if (index == kNone) return kNone;
  longest_free_ = slots_[index].next_free;
  if (longest_free_ == kNone) last_freed_ = kNone;
  return index;
}

std::uint32_t QpTable::number_of(std::uint32_t slot, std::uint32_t tag) const noexcept {
  if (slot >> slot_bits_ == 0) return (tag << slot_bits_ | slot) ^ secret_;
  return kFree + (((tag << kAllSlotBits | slot) ^ secret_) & (kFreeNumbers - 1));
}

std::uint32_t QpTable::add(Qp& qp) {
  const std::uint32_t index = take_slot();
  if (index == kNone) return 0;
  Slot& slot = slots_[index];
  const std::uint32_t tags = index >> slot_bits_ == 0 ? 1U << tag_bits_ : kFreeNumbers >> kAllSlotBits;
  std::uint32_t number = 0;
  while (reserved(number)) {
    slot.tag = static_cast<std::uint8_t>((slot.tag + 1 + random_() % (tags - 1)) % tags);
    number = number_of(index, slot.tag);
  }
  slot.qp = &qp;
  slot.number = number;
  ++used_;
  return number;
}

void QpTable::remove(std::uint32_t number) noexcept {
  const auto index = static_cast<std::uint32_t>(slot_of(number));
  Slot& slot = slots_[index];
  slot.qp = nullptr;
  slot.number = 0;
  slot.next_free = kNone;
  (last_freed_ == kNone ? longest_free_ : slots_[last_freed_].next_free) = index;
  last_freed_ = index;
  --used_;
}

}  // namespace fairlead::soft
