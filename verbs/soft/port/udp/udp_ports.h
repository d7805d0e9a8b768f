// The UDP ports of one device. At its loopback address it is alone; every other address it shares with the devices of
// this user's other processes (shared_address.h), and at all of them it has the same place, for its queue pairs are
// numbered once.
//
// A device with an address of its own choice has the first place there that is free: 0, to which QP1 belongs too, or
// the device's number, which no other device of this user has. One without has its number everywhere. Where there is no
// directory to find the others by, it has addresses alone, as far as they are free.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "fairlead/status.h"
#include "verbs/soft/port/interfaces.h"
#include "verbs/soft/port/udp/udp_port.h"

namespace fairlead::soft {

class UdpPorts {
 public:
  struct Bound {
    std::unique_ptr<UdpPort> port;
    bool shared = false;
  };

  /// `receive_buffer`: what its sockets ask for; 0: as much as is of use.
  explicit UdpPorts(std::size_t receive_buffer = 0) noexcept : receive_buffer_(receive_buffer) {}

  /// Once, and first: at an address that the device was given, or at the first free one of 127.0.0.0/8.
  Result<Bound> bind_own(const Gid& address);
  Result<Bound> bind_loopback();
  /// At another address of the host.
  Result<Bound> bind(const InterfaceAddress& address);
  /// The partition of the device's queue pair numbers; none: it shares nothing.
  [[nodiscard]] std::optional<std::uint8_t> place() const noexcept { return place_; }

 private:
  [[nodiscard]] Result<Bound> checked(std::unique_ptr<UdpPort> port, bool shared) const;
  [[nodiscard]] Result<Bound> bind_alone(const InterfaceAddress& address) const;
  [[nodiscard]] Result<Bound> share(const InterfaceAddress& address, std::unique_ptr<SharedAddress> place) const;

  std::size_t receive_buffer_;
  DeviceNumber number_;
  std::optional<std::uint8_t> place_;
};

}  // namespace fairlead::soft
