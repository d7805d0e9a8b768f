#include "verbs/soft/port/dpdk/calls.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

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

std::vector<int> silent_ones(const std::string& server) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (is_connected_to(fd, server) && soft::is_silent(fd) && !soft::is_kept(fd)) found.push_back(fd);
  }
  return found;
}

}  // namespace

bool calls(const std::string& server) noexcept { return !silent_ones(server).empty(); }

void keep_calls(const std::string& server) noexcept {
  for (const int fd : silent_ones(server)) soft::keep_ungreeted(PrivateFd(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0))));
}

}  // namespace fairlead::dpdk
