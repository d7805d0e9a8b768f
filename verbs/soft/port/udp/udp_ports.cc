#include "verbs/soft/port/udp/udp_ports.h"

#include <fmt/format.h>

#include "base/system/own_user.h"
#include "fairlead/log.h"

namespace fairlead::soft {
namespace {

constexpr unsigned kMostNumbers = SharedAddress::kMaxMembers - 1;

}  // namespace

Result<UdpPorts::Bound> UdpPorts::checked(std::unique_ptr<UdpPort> port, bool shared) const {
  if (receive_buffer_ != 0) port->ask_for_receive_buffer(receive_buffer_);
  if (const Status status = port->status(); !status.ok()) return status;
  return UdpPorts::Bound{std::move(port), shared};
}

Result<UdpPorts::Bound> UdpPorts::bind_alone(const InterfaceAddress& address) const {
  auto socket = bind_roce_port(address.gid, PortUse::kReceive, address.index);
  if (!socket) return socket.error();
  return checked(std::make_unique<UdpPort>(address, std::move(*socket)), false);
}

Result<UdpPorts::Bound> UdpPorts::share(const InterfaceAddress& address, std::unique_ptr<SharedAddress> place) const {
  return checked(std::make_unique<UdpPort>(address, std::move(place)), true);
}

Result<UdpPorts::Bound> UdpPorts::bind_own(const Gid& address) {
  if (const auto directory = meeting_directory(); !directory) {
    log(LogLevel::kWarning, fmt::format("softroce has {} alone: {}", to_string(address), directory.error().message()));
    return bind_alone(interface_of(address));
  }
  auto joined = SharedAddress::join(address, 0);
  if (joined && *joined == nullptr) {
    auto number = claim_device_number(kMostNumbers);
    if (!number) return number.error();
    number_ = std::move(*number);
    joined = SharedAddress::join(address, number_.value);
  }
  if (!joined) return joined.error();
  if (*joined == nullptr) {
    return {Code::kAlreadyExists, fmt::format("softroce: place {} at {} is taken by a process that did not ask for it",
                                              number_.value, to_string(address))};
  }
  place_ = (*joined)->member();
  return share(interface_of(address), std::move(*joined));
}

Result<UdpPorts::Bound> UdpPorts::bind_loopback() {
  Gid address;
  auto socket = bind_free_loopback(address);
  if (!socket) return socket.error();
  if (auto number = claim_device_number(kMostNumbers)) {
    number_ = std::move(*number);
    place_ = static_cast<std::uint8_t>(number_.value);
  } else {
    log(LogLevel::kInfo,
        fmt::format("softroce at {} shares no address of this host: {}", to_string(address), number.error().message()));
  }
  return checked(std::make_unique<UdpPort>(interface_of(address), std::move(*socket)), false);
}

Result<UdpPorts::Bound> UdpPorts::bind(const InterfaceAddress& address) {
  if (!place_) return bind_alone(address);
  auto place = SharedAddress::join(address.gid, *place_, address.index);
  if (!place) return place.error();
  if (*place != nullptr) return share(address, std::move(*place));
  return {Code::kAlreadyExists,
          fmt::format("softroce: another process has place {} at {}, which is this device's at its own address; name "
                      "{} with FAIRLEAD_SOFT_ADDRESS",
                      *place_, to_string(address.gid), to_string(address.gid))};
}

}  // namespace fairlead::soft
