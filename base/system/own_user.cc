#include "base/system/own_user.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "fairlead/log.h"

namespace fairlead {
namespace {

constexpr uid_t kUsualOverflow = 65534;

bool is_overflow(uid_t user) {
  uid_t overflow = kUsualOverflow;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  if (user != overflow) return false;
  // Where every user has an id, that one is a user's too.
  std::uint64_t first = 1, outside = 1, count = 0;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  return first != 0 || outside != 0 || count != ~std::uint32_t{0};
}

constexpr const char* kDirectory = "FAIRLEAD_SOFT_DIRECTORY";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// By the user's id alone, so that a service and a shell agree. Nobody else can take a name in /run.
std::vector<std::string> candidates() {
  const std::string name = fmt::format("fairlead-{}", ::geteuid());
  std::vector<std::string> all{"/dev/shm/" + name};
  if (::geteuid() == 0) all.insert(all.begin(), "/run/" + name);
  if (const std::string run = environment("XDG_RUNTIME_DIR"); run.starts_with('/')) all.push_back(run + "/fairlead");
  return all;
}

}  // namespace

bool is_own_user(uid_t user) noexcept { return user == ::geteuid() && !is_overflow(user); }

ucred peer_of(int socket) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer = {.pid = 0, .uid = ~uid_t{0}, .gid = 0};
  return peer;
}

Status make_own_directory(const std::string& path) {
  struct stat info{};
  if ((::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) || ::lstat(path.c_str(), &info) != 0) {
    return {Code::kUnavailable,
            fmt::format("the directory {} cannot be made: {}; name another with FAIRLEAD_SOFT_DIRECTORY, and for "
                        "shared memory shm.directory",
                        path, std::strerror(errno))};
  }
  if (!S_ISDIR(info.st_mode)) {
    return {Code::kPermissionDenied, fmt::format("{} is no directory; remove or rename it", path)};
  }
  if (!is_own_user(info.st_uid)) {
    return {Code::kPermissionDenied,
            fmt::format("uid {} has the directory {}, which should be of uid {}; remove or rename it", info.st_uid,
                        path, ::geteuid())};
  }
  if ((info.st_mode & 077) == 0) return {};
  return {Code::kPermissionDenied, fmt::format("other users may use the directory {} (mode {:04o}); chmod 700 {}", path,
                                               info.st_mode & 07777, path)};
}

bool is_usual_meeting_directory() { return environment(kDirectory).empty(); }

Result<std::string> meeting_directory() {
  if (std::string wanted = environment(kDirectory); !wanted.empty()) {
    if (const Status status = make_own_directory(wanted); !status.ok()) return status;
    return wanted;
  }
  Status first;
  for (std::string& path : candidates()) {
    const Status status = make_own_directory(path);
    if (status.ok()) return std::move(path);
    static std::atomic<bool> said{false};
    if (status.code() == Code::kPermissionDenied && !said.exchange(true)) {
      log(LogLevel::kWarning, "processes of this host do not meet as usual: " + status.message());
    }
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace fairlead
