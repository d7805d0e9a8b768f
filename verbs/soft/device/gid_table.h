// The GID table of a device's port: it follows the host's addresses, unless the port has a wire of its own.
//
// Index 0 is link-local, made from the device's GUID; index 1 the device's own address; the others are the host's. A
// GID keeps its index as long as its address is there; an index that becomes free is empty until another address comes.
// The device's own address comes back to index 1.
// On a wire of its own: index 0 is link-local, made from the station's address, and 2 again the device's own address,
// both for RoCE v1. Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "verbs/soft/port/address_monitor.h"
#include "verbs/soft/port/interfaces.h"

namespace fairlead::soft {

class GidTable {
 public:
  static constexpr std::uint32_t kLength = 16;

  GidTable(std::uint64_t guid, const Gid& own);
  /// Of a port that has nothing to do with the host: no other addresses ever.
  [[nodiscard]] static GidTable of_own_wire(const Gid& link_local, const Gid& own) { return GidTable(link_local, own); }

  /// What stands at an index; a null GID where it is empty or past the end.
  [[nodiscard]] InterfaceAddress at(std::uint32_t index) const;
  /// Of the frames that a queue pair with this GID sends and takes.
  [[nodiscard]] RoceVersion version(std::uint32_t index) const noexcept {
    return own_wire_ && index != 1 ? RoceVersion::kV1 : RoceVersion::kV2;
  }
  /// Takes over what the host's addresses have become. True if the table changed. Cheap where nothing happened. Where
  /// they cannot be listed, for want of descriptors, say, the table stays as it is, and the next call looks again.
  bool follow_host();
  /// Takes over these addresses of a host, as tests have them. True if the table changed.
  bool update(const std::vector<InterfaceAddress>& host);
  /// Readable when follow_host() has something to do; -1 where the host cannot be followed.
  [[nodiscard]] int wait_fd() const noexcept { return monitor_ ? monitor_->fd() : -1; }

 private:
  GidTable(std::uint64_t guid, const Gid& own, std::unique_ptr<AddressMonitor> monitor);
  GidTable(const Gid& link_local, const Gid& own);

  // Under the mutex.
  bool take_over(const std::vector<InterfaceAddress>& host);
  [[nodiscard]] bool holds(const Gid& gid) const noexcept;

  const Gid own_;
  const std::unique_ptr<AddressMonitor> monitor_;  // null: not followed
  const bool own_wire_ = false;
  mutable std::mutex mutex_;
  bool behind_ = true;         // the host's addresses may be others than those that were taken over
  bool own_is_hosts_ = false;  // or was: an address that never was any host's, as tests have it, stays
  std::array<InterfaceAddress, kLength> entries_;
};

}  // namespace fairlead::soft
