#include "verbs/soft/device/gid_table.h"

#include <algorithm>

namespace fairlead::soft {
namespace {

constexpr std::uint32_t kOwnIndex = 1;

Gid link_local(std::uint64_t guid) noexcept {
  Gid gid;
  gid.bytes[0] = 0xfe;
  gid.bytes[1] = 0x80;
  for (unsigned i = 0; i < 8; ++i) gid.bytes[8 + i] = static_cast<std::uint8_t>(guid >> (56 - 8 * i));
  return gid;
}

bool same(const InterfaceAddress& a, const InterfaceAddress& b) noexcept {
  return a.gid == b.gid && a.index == b.index && a.mtu == b.mtu;
}

// 127.0.0.0/8 is there whole, whatever the interface lists.
InterfaceAddress find_own(const std::vector<InterfaceAddress>& host, const Gid& own) {
  const bool loopback = own.is_ipv4() && own.ipv4() >> 24 == 127;
  const auto found = std::find_if(host.begin(), host.end(), [&](const InterfaceAddress& address) {
    return address.gid == own || (loopback && address.loopback && address.gid.is_ipv4());
  });
  if (found == host.end()) return {};
  InterfaceAddress address = *found;
  address.gid = own;
  return address;
}

}  // namespace

GidTable::GidTable(std::uint64_t guid, const Gid& own) : GidTable(guid, own, std::make_unique<AddressMonitor>()) {
  follow_host();
}

GidTable::GidTable(std::uint64_t guid, const Gid& own, std::unique_ptr<AddressMonitor> monitor)
    : own_(own), monitor_(std::move(monitor)) {
  entries_[kOwnIndex] = interface_of(own);
  entries_[kOwnIndex].gid = own;
  entries_[0].gid = link_local(guid);  // of no interface: a name, which no socket can send from
}

GidTable::GidTable(const Gid& link_local, const Gid& own) : own_(own), own_wire_(true) {
  entries_[0].gid = link_local;
  entries_[kOwnIndex].gid = entries_[kOwnIndex + 1].gid = own;
}

InterfaceAddress GidTable::at(std::uint32_t index) const {
  if (index >= kLength) return {};
  const std::lock_guard lock(mutex_);
  return entries_[index];
}

bool GidTable::follow_host() {
  // Who comes while another thread takes over the news waits for it.
  const std::lock_guard lock(mutex_);
  if (!monitor_) return false;
  behind_ = monitor_->changed() || behind_;
  const auto host = behind_ ? host_addresses() : std::nullopt;
  if (!host) return false;  // without descriptors nobody can look; what is there stays
  behind_ = false;
  return take_over(*host);
}

bool GidTable::update(const std::vector<InterfaceAddress>& host) {
  const std::lock_guard lock(mutex_);
  return take_over(host);
}

bool GidTable::take_over(const std::vector<InterfaceAddress>& host) {
  bool changed = false;
  const auto set = [&changed](InterfaceAddress& entry, const InterfaceAddress& to) {
    changed = changed || !same(entry, to);
    entry = to;
  };
  const InterfaceAddress own = find_own(host, own_);
  own_is_hosts_ = own_is_hosts_ || !own.gid.is_null();
  if (own_is_hosts_) set(entries_[kOwnIndex], own);
  for (std::uint32_t index = kOwnIndex + 1; index < kLength; ++index) {
    const auto found = std::find_if(
        host.begin(), host.end(), [&](const InterfaceAddress& address) { return address.gid == entries_[index].gid; });
    set(entries_[index], found != host.end() ? *found : InterfaceAddress{});
  }
  for (const InterfaceAddress& address : host) {
    if (address.loopback || address.gid == own_ || holds(address.gid)) continue;
    const auto empty = std::find_if(entries_.begin() + kOwnIndex + 1, entries_.end(),
                                    [](const InterfaceAddress& entry) { return entry.gid.is_null(); });
    if (empty == entries_.end()) break;
    set(*empty, address);
  }
  return changed;
}

bool GidTable::holds(const Gid& gid) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(), [&](const InterfaceAddress& entry) { return entry.gid == gid; });
}

}  // namespace fairlead::soft
