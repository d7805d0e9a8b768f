#include "verbs/soft/port/dpdk/listener.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "verbs/soft/port/dpdk/unix_name.h"

namespace fairlead::dpdk {
namespace {

// Of this process's server ports, one for each. Never destroyed: ports may be statics.
std::vector<std::string>& in_use() {
  static auto& names = *new std::vector<std::string>;
  return names;
}

// Empty: no listening socket of the family.
std::string listens_at(int fd) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return {};
  sockaddr_un address{};
  length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  return unix_name(address, length);
}

}  // namespace

Listener::Listener(std::string name) : name_(std::move(name)) {
  if (!name_.empty()) in_use().push_back(name_);
}

void Listener::close() noexcept {
  const std::string name = std::exchange(name_, {});
  if (name.empty()) return;
  std::vector<std::string>& names = in_use();
  names.erase(std::find(names.begin(), names.end(), name));
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const UniqueFd quiet(::eventfd(0, EFD_CLOEXEC));
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (listens_at(fd) == name) ::dup3(quiet.get(), fd, O_CLOEXEC);
  }
}

}  // namespace fairlead::dpdk
