#include "verbs/soft/memory.h"

namespace fairlead::soft {

Mr* MrTable::add(Pd& pd, void* address, std::size_t length, unsigned access) {
  if (free_.empty()) {
    if (slots_.size() == kMaxRegions) return nullptr;
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
    free_.reserve(slots_.capacity());
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  auto region = std::make_unique<Mr>();
  std::uint32_t key = 0;
  while (key == 0) {  // 0 is what an uninitialised key looks like
    const auto tag = static_cast<std::uint32_t>(random_()) & ((1U << kTagBits) - 1);
    key = (slot << kTagBits | tag) ^ secret_;
  }
  region->context = pd.context;
  region->pd = &pd;
  region->addr = address;
  region->length = length;
  region->handle = slot;
  region->lkey = region->rkey = key;
  region->access = access;
  ++pd.users;
  ++used_;
  slots_[slot] = std::move(region);
  return slots_[slot].get();
}

void MrTable::remove(Mr* region) noexcept {
  const std::uint32_t slot = region->handle;
  --static_cast<Pd*>(region->pd)->users;
  --used_;
  slots_[slot].reset();
  free_.push_back(slot);  // add() reserved the room
}

}  // namespace fairlead::soft
