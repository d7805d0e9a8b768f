#include "verbs/soft/port/address_monitor.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace fairlead::soft {

AddressMonitor::AddressMonitor() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl groups{};
  groups.nl_family = AF_NETLINK;
  groups.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&groups), sizeof(groups)) == 0) {
    fd_ = PrivateFd(std::move(fd));
  }
}

bool AddressMonitor::changed() noexcept {
  bool any = false;
  std::array<char, 8192> message;
  while (fd_) {
    const ssize_t got = ::recv(fd_.get(), message.data(), message.size(), MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == ENOBUFS)) {  // too much happened to be told
      any = true;
    } else if (got == 0 || errno != EINTR) {
      break;
    }
  }
  return any;
}

}  // namespace fairlead::soft
