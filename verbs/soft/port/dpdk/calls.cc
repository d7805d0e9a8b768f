#include "verbs/soft/port/dpdk/calls.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/private_fd.h"
#include "verbs/soft/port/dpdk/unix_name.h"
#include "verbs/soft/port/ungreeted.h"

namespace fairlead::dpdk {
namespace {

bool is_connected_to(int fd, const std::string& server) {
  sockaddr_un address{};
  socklen_t length = sizeof address;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 && unix_name(address, length) == server;
}

}  // namespace

std::vector<int> calls_to(const std::string& server) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (is_connected_to(fd, server)) found.push_back(fd);
  }
  return found;
}

bool is_silent_call(int descriptor, const std::string& server) noexcept {
  return descriptor >= 0 && is_connected_to(descriptor, server) && soft::is_silent(descriptor);
}

void keep_call(int descriptor) noexcept {
  soft::keep_ungreeted(PrivateFd(UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0))));
}

}  // namespace fairlead::dpdk
