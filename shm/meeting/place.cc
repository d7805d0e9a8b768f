#include "shm/meeting/place.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/system/own_user.h"
#include "base/unique_fd.h"

namespace fairlead::shm {
namespace {

#ifndef SO_NETNS_COOKIE
constexpr int kNamespaceCookie = 71;  // since Linux 5.14
#else
constexpr int kNamespaceCookie = SO_NETNS_COOKIE;
#endif

/// A number that no other network namespace of this boot has.
Result<std::uint64_t> network_namespace() {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (socket && ::getsockopt(socket.get(), SOL_SOCKET, kNamespaceCookie, &cookie, &size) == 0) return cookie;
  return {Code::kUnavailable,
          fmt::format("shm cannot tell its network namespace from others: {}; name a directory by shm.directory",
                      std::strerror(errno))};
}

Result<std::string> boot() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  if (!id.empty()) return id;
  return {Code::kUnavailable, "shm cannot tell this host from others: /proc/sys/kernel/random/boot_id is not readable"};
}

/// FNV-1a: numbers need only differ where places do, and a peer that makes one up gains nothing.
std::uint64_t number_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string Place::name() const { return fmt::format("{:016x}", number); }

Result<Place> find_place(const ShmConfig& config) {
  const bool named = !config.directory.empty();
  std::error_code wrong;
  std::string directory = named ? std::filesystem::absolute(config.directory, wrong).string() : std::string();
  if (wrong) {
    return {Code::kUnavailable,
            fmt::format("shm.directory {} is relative, and to what cannot be told: {}; name it in full",
                        config.directory, wrong.message())};
  }
  if (!named) {
    const Result<std::string> users = meeting_directory();
    if (!users) return users.error();
    directory = *users + "/shm";
  }
  if (const Status own = make_own_directory(directory); !own.ok()) return own;
  struct stat info{};
  if (::stat(directory.c_str(), &info) != 0) {
    return {Code::kUnavailable, fmt::format("the directory {} is gone: {}", directory, std::strerror(errno))};
  }
  const Result<std::string> booted = boot();
  if (!booted) return booted.error();
  std::uint64_t network = 0;
  if (!named) {
    const Result<std::uint64_t> cookie = network_namespace();
    if (!cookie) return cookie.error();
    network = *cookie;
  }
  // The system may sweep the usual one away, and whoever needs it next makes it again: it is the same place.
  const bool usual = !named && is_usual_meeting_directory();
  const std::string which = usual ? directory : fmt::format("{}", std::uint64_t{info.st_ino});
  const std::string all =
      fmt::format("{} {} {} {} {}", *booted, ::geteuid(), std::uint64_t{info.st_dev}, which, network);
  return Place{.directory = std::move(directory), .number = number_of(all)};
}

}  // namespace fairlead::shm
