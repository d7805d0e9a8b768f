#include "verbs/soft/memory.h"

namespace fairlead::soft {
namespace {

// Newton: each step doubles the number of low bits that are right, of which an odd number has three by itself.
constexpr std::uint32_t inverse(std::uint32_t odd) noexcept {
  std::uint32_t x = odd;
  for (int i = 0; i < 4; ++i) x *= 2 - odd * x;
  return x;
}
static_assert(inverse(0xabcdef1) * 0xabcdef1 == 1);

}  // namespace

MrTable::MrTable(std::uint64_t seed) : random_(seed) {
  secret_ = static_cast<std::uint32_t>(random_()) & kSlotMask;
  scramble_ = static_cast<std::uint32_t>(random_()) | 1;
  unscramble_ = inverse(scramble_);
  tag_step_ = static_cast<std::uint8_t>(random_() | 1);
}

void MrTable::append_free(std::uint32_t slot) noexcept {
  next_[slot] = kNone;
  (last_free_ == kNone ? first_free_ : next_[last_free_]) = slot;
  last_free_ = slot;
}

// The new slot comes first, so that those that were in use rest.
void MrTable::grow() {
  const auto slot = static_cast<std::uint32_t>(slots_.size());
  next_.push_back(first_free_);
  try {
    tags_.resize(slot + 1U, static_cast<std::uint8_t>(random_()));
    slots_.push_back(nullptr);
  } catch (...) {
    next_.pop_back();
    throw;
  }
  first_free_ = slot;
  if (last_free_ == kNone) last_free_ = slot;
}

bool MrTable::add(Grant& grant) {
  if (slots_.size() - used_ <= kResting && slots_.size() < kMaxKeys) grow();
  if (first_free_ == kNone) return false;
  const std::uint32_t slot = first_free_;
  first_free_ = next_[slot];
  if (first_free_ == kNone) last_free_ = kNone;
  do {
    tags_[slot] = static_cast<std::uint8_t>(tags_[slot] + tag_step_);
    grant.key = key_of(slot, tags_[slot]);
  } while (grant.key == 0);  // what an uninitialised key looks like
  slots_[slot] = &grant;
  ++used_;
  windows_ += grant.window ? 1 : 0;
  return true;
}

void MrTable::remove(const Grant& grant) noexcept {
  const std::uint32_t slot = slot_of(grant.key);
  tags_[slot] = static_cast<std::uint8_t>(grant.key);  // a window's was its consumer's choice
  slots_[slot] = nullptr;
  append_free(slot);
  --used_;
  windows_ -= grant.window ? 1 : 0;
}

}  // namespace fairlead::soft
