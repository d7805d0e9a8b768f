#include "verbs/soft/port/dpdk/host_interface.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <utility>

namespace fairlead::dpdk {
namespace {

bool ask(int socket, unsigned long what, const std::string& name, ifreq& request) noexcept {
  if (name.size() >= sizeof(request.ifr_name)) return false;
  name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  return ::ioctl(socket, what, &request) == 0;
}

}  // namespace

HostInterface::HostInterface(std::string name)
    : name_(std::move(name)), socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

std::uint32_t HostInterface::mtu() const noexcept {
  ifreq request{};
  return ask(socket_.get(), SIOCGIFMTU, name_, request) ? static_cast<std::uint32_t>(request.ifr_mtu) : 0;
}

bool HostInterface::runs() const noexcept {
  ifreq request{};
  constexpr int kRuns = IFF_UP | IFF_RUNNING;
  return ask(socket_.get(), SIOCGIFFLAGS, name_, request) && (request.ifr_flags & kRuns) == kRuns;
}

}  // namespace fairlead::dpdk
