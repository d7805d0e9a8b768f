#include "verbs/soft/memory.h"

namespace fairlead::soft {

Mr* MrTable::add(Pd& pd, void* address, std::size_t length, unsigned access) {
  auto region = std::make_unique<Mr>();
  if (free_.empty()) {
    if (slots_.size() == kMaxRegions) return nullptr;
    slots_.emplace_back();
    tags_.push_back(static_cast<std::uint16_t>(random_() & kTagMask));
    free_.reserve(slots_.capacity());
    free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  std::uint32_t key = 0;
  while (key == 0) {  // 0 is what an uninitialised key looks like
    // Never the tag that the slot had last: an old key must not fit the new region.
    const auto step = static_cast<std::uint32_t>(1 + random_() % kTagMask);
    tags_[slot] = static_cast<std::uint16_t>((tags_[slot] + step) & kTagMask);
    key = (slot << kTagBits | tags_[slot]) ^ secret_;
  }
  region->context = pd.context;
  region->pd = &pd;
  region->addr = address;
  region->length = length;
  region->handle = slot;
  region->lkey = region->rkey = key;
  region->start = static_cast<std::byte*>(address);
  region->bytes = length;
  region->domain = &pd.root();
  region->key = key;
  region->access = access;
  ++pd.users;
  ++used_;
  slots_[slot] = std::move(region);
  return slots_[slot].get();
}

void MrTable::remove(Mr* region) noexcept {
  const std::uint32_t slot = (region->key ^ secret_) >> kTagBits;
  --static_cast<Pd*>(region->pd)->users;
  --used_;
  slots_[slot].reset();
  free_.push_back(slot);  // add() reserved the room
}

}  // namespace fairlead::soft
