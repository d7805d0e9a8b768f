#include "verbs/soft/memory/mr_table.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace fairlead::soft {

bool MrTable::is_free(std::uint32_t key) const noexcept {
  // Index 0 has the key 0, what an uninitialised key looks like.
  return index_of(key) != 0 && slots_[slot_of(key)] == nullptr &&
         std::ranges::find(resting_, index_of(key)) == resting_.end();
}

std::uint32_t MrTable::draw() {
  if (undrawn_ == 0) {
    if (::getentropy(drawn_.data(), sizeof(drawn_)) != 0) {
      throw std::system_error(errno, std::generic_category(), "the kernel gives no random numbers to make keys of");
    }
    undrawn_ = drawn_.size();
  }
  return drawn_[--undrawn_];
}

void MrTable::grow() {
  std::vector<Grant*> before(2 * slots_.size());
  before.swap(slots_);
  for (Grant* grant : before) {
    if (grant != nullptr) slots_[slot_of(grant->key)] = grant;
  }
}

bool MrTable::add(Grant& grant) {
  if (used_ == kMaxKeys || (grant.window && windows_ == kMaxWindows)) return false;
  if (2 * (used_ + 1) > slots_.size()) grow();
  do {
    grant.key = draw();
  } while (!is_free(grant.key));
  slots_[slot_of(grant.key)] = &grant;
  ++used_;
  windows_ += grant.window ? 1 : 0;
  return true;
}

void MrTable::remove(const Grant& grant) noexcept {
  resting_[given_up_++ % kResting] = index_of(grant.key);
  std::size_t hole = slot_of(grant.key);
  // What a search would miss now, as it ends at the hole, moves there.
  for (std::size_t slot = after(hole); slots_[slot] != nullptr; slot = after(slot)) {
    const std::size_t mask = slots_.size() - 1;
    if (((slot - home(slots_[slot]->key)) & mask) < ((slot - hole) & mask)) continue;
    slots_[hole] = slots_[slot];
    hole = slot;
  }
  slots_[hole] = nullptr;
  --used_;
  windows_ -= grant.window ? 1 : 0;
}

}  // namespace fairlead::soft
