#include "datapath/flow/device_staging.h"

#include <algorithm>
#include <cassert>

namespace fairlead::datapath {

std::size_t DeviceStaging::slot_for(std::size_t bytes) noexcept {
  // A copy of 1 MiB by itself takes 0.89 of what large ones do on a PCIe 5 device, one of 2 MiB 0.94.
  constexpr std::size_t kMost = std::size_t{2} << 20, kWanted = 8;
  return std::clamp(bytes / kWanted / kLeastSlot * kLeastSlot, kLeastSlot, kMost);
}

DeviceStaging::DeviceStaging(std::shared_ptr<gpu::Driver> driver, std::unique_ptr<gpu::PinnedMemory> pinned,
                             std::shared_ptr<RegisteredRange> range)
    : pinned_(std::move(pinned)),
      range_(std::move(range)),
      slot_bytes_(slot_for(pinned_->bytes().size())),
      copier_(std::move(driver)) {
  assert(pinned_->bytes().size() >= kLeast);
  const std::size_t slots = pinned_->bytes().size() / slot_bytes_;
  for (std::size_t i = 0; i < slots; ++i) {
    Part& to = parts_[i % 2];
    to.free.push_back(pinned_->bytes().data() + i * slot_bytes_);
    ++to.slots;
  }
}

std::byte* DeviceStaging::take(Side side, SlotWaiter& waiter) noexcept {
  Part& of = part(side);
  if (of.free.empty()) {
    of.waiting.push_back(waiter.in_waiting);
    return nullptr;
  }
  std::byte* const slot = of.free.back();
  of.free.pop_back();
  return slot;
}

void DeviceStaging::give_back(Side side, std::byte* slot) noexcept {
  Part& of = part(side);
  of.free.push_back(slot);
  if (SlotWaiter* const next = of.waiting.pop_front()) next->slot_free();
}

}  // namespace fairlead::datapath
