#include "datapath/region/devices.h"

#include <fmt/format.h>

#include <utility>

namespace fairlead::datapath {
namespace {

Status named(const MemoryDomain& device, const Status& status) {
  return {status.code(), fmt::format("{}: {}", device.name(), status.message())};
}

}  // namespace

MemoryDomain& Devices::device(std::size_t number) {
  const std::lock_guard lock(mutex_);
  return number < devices_.size() ? *devices_[number] : *coming_;
}

void Devices::withdraw(Entry& entry, std::size_t known) noexcept {
  while (known > 0) entry.withdraw(device(--known));
}

Result<Devices::Ticket> Devices::add(Entry& entry) {
  const std::shared_lock calling(calling_);
  for (std::size_t known = 0;; ++known) {
    MemoryDomain* next = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (known == devices_.size()) {
        entries_.emplace_hint(entries_.end(), ++last_ticket_, Slot{&entry, known});
        return last_ticket_;
      }
      next = devices_[known];
    }
    if (Status told = entry.introduce(*next); !told.ok()) {
      withdraw(entry, known);
      return named(*next, told);
    }
  }
}

bool Devices::remove(Ticket ticket) noexcept {
  const std::shared_lock calling(calling_);
  Slot slot;
  {
    std::unique_lock lock(mutex_);
    const auto at = entries_.find(ticket);
    if (at == entries_.end()) return false;
    let_go_.wait(lock, [&at] { return !at->second.busy; });
    slot = at->second;
    entries_.erase(at);
  }
  withdraw(*slot.entry, slot.known);
  return true;
}

Devices::Entry* Devices::take_next(Ticket& after, MemoryDomain& device) {
  const std::lock_guard lock(mutex_);
  const auto at = entries_.upper_bound(after);
  if (at == entries_.end()) {
    devices_.push_back(&device);
    coming_ = nullptr;
    return nullptr;
  }
  after = at->first;
  at->second.busy = true;
  return at->second.entry;
}

void Devices::let_go(Ticket ticket, std::size_t known) {
  {
    const std::lock_guard lock(mutex_);
    Slot& slot = entries_.at(ticket);
    slot.busy = false;
    slot.known = known;
  }
  let_go_.notify_all();
}

Status Devices::attach(MemoryDomain& device) {
  std::size_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = devices_.size();
    coming_ = &device;
  }
  Status told;
  for (Ticket last = 0; told.ok();) {
    Entry* const entry = take_next(last, device);
    if (entry == nullptr) return {};
    told = entry->introduce(device);
    let_go(last, told.ok() ? number + 1 : number);
  }
  // It knows some, and who removes one of those may be calling it.
  const std::lock_guard nobody_calls(calling_);
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.known <= number) continue;
    at->second.entry->withdraw(device);
    at->second.known = number;
  }
  coming_ = nullptr;
  return named(device, told);
}

void Devices::detach_all() noexcept {
  const std::lock_guard nobody_calls(calling_);
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) withdraw(*at->second.entry, at->second.known);
  const std::lock_guard lock(mutex_);
  entries_.clear();
  devices_.clear();
}

}  // namespace fairlead::datapath
