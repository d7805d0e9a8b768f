// Communication management of an open softroce device, and the devices that serve the rdma_* calls of this process.
//
// Their contexts share addresses and queue pair numbers with those that the program opened itself, and stay open to the
// end of the process, as librdmacm's do.
// Threads: `manager` under the lock of the device's domain; the rest any.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "fairlead/log.h"
#include "verbs/cm/manager.h"
#include "verbs/soft/datagram/management.h"
#include "verbs/soft/device/device.h"

namespace fairlead::cm {

class DeviceCm final : public soft::ManagementHandler, public Link {
 public:
  /// Serves QP1 of the device from here on. The device must stay open.
  explicit DeviceCm(soft::Device& device);

  // ManagementHandler and Link; under the domain's lock.
  void on_mad(const Gid& local, const Gid& remote, std::span<const std::byte, kMadBytes> mad) noexcept override;
  void run_timers() noexcept override;
  void send(const Gid& from, const Gid& to, const MadBytes& mad) noexcept override;
  [[nodiscard]] Nanos now() const noexcept override;
  void set_deadline(Nanos at) noexcept override;
  [[nodiscard]] std::optional<std::uint8_t> place() const noexcept override;

  [[nodiscard]] ibv_context* context() noexcept { return &device.context; }
  [[nodiscard]] soft::Domain& domain() noexcept { return device.domain(); }
  /// Where the GID stands in the device's table.
  [[nodiscard]] std::optional<std::uint32_t> index_of(const Gid& gid) noexcept;
  [[nodiscard]] Gid gid(std::uint32_t index) noexcept;
  /// Binds the port of a GID, so that QP1 and queue pairs can use it. 0 or an errno, logged.
  int bind_port(std::uint32_t gid_index);
  /// The same, so that requests for the service come here until leave(). Where they reach another process: EADDRINUSE.
  int listen_at(std::uint32_t gid_index, std::uint64_t service, LogLevel if_refused = LogLevel::kError);
  void leave(const Gid& gid, std::uint64_t service);
  /// The largest that packets from this GID may have; of one that is bound.
  [[nodiscard]] ibv_mtu path_mtu(std::uint32_t gid_index);
  /// For queue pairs of programs that bring no protection domain. Null with errno.
  [[nodiscard]] ibv_pd* default_pd();

  soft::Device& device;
  Manager manager;

 private:
  Nanos deadline_ = 0;  // of the manager; 0: none
  std::once_flag pd_once_;
  ibv_pd* pd_ = nullptr;
};

/// A device and the GID of it that stands for a local address.
struct Place {
  DeviceCm* device = nullptr;
  std::uint32_t gid_index = 0;
  bool stands_in =
      false;  // for the device of another process, which has the address: to connect from, not to listen at
};

/// Where a program that gives this local address is served. A loopback address gets a device there or, where the
/// environment names another address, means that device; where another process's device has it, our own stands in.
/// Nothing with errno: no device can have the address.
[[nodiscard]] std::optional<Place> place_at(const Gid& local);
/// Where a program that gives only a destination is served.
[[nodiscard]] std::optional<Place> place_toward(const Gid& remote);
/// The device that serves where nothing says which: the first one open, or the environment's. Null with errno.
[[nodiscard]] DeviceCm* primary_device();
/// All that serve now.
[[nodiscard]] std::vector<DeviceCm*> serving_devices();
/// Whether this process has had devices that serve, rather than, at most, its parent. Async-signal-safe.
[[nodiscard]] bool serves_here() noexcept;
/// At the end of the process: tells the peers, best effort. It allocates, so in a signal handler it may wait for ever.
void disconnect_everything() noexcept;

}  // namespace fairlead::cm
