#include "verbs/soft/port/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/unique_fd.h"

namespace fairlead::soft {
namespace {

/// Nothing: that cannot be told, and errno says why.
std::optional<bool> somebody_listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  for (const int type : {SOCK_SEQPACKET, SOCK_STREAM}) {  // memif's, vhost-user's
    const UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return std::nullopt;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return true;
    if (errno != ECONNREFUSED && errno != EPROTOTYPE) return true;
  }
  return false;
}

}  // namespace

std::string refuse_socket_file(const std::string& path, SocketUse use) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return "the socket's name '" + path + "' has " + std::to_string(path.size()) + " bytes, and at most " +
           std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " are possible; give a shorter one";
  }
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct stat facts{};
  if (::stat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    return "there is no folder " + folder + " for the socket " + path + "; make it, or name another";
  }
  const bool there = ::lstat(path.c_str(), &facts) == 0;
  if (there && !S_ISSOCK(facts.st_mode)) return path + " is there and is no socket; name another";
  if (use == SocketUse::kConnect) {
    if (there && ::access(path.c_str(), W_OK) != 0) {
      return "the socket " + path + " is not for this user (" + std::strerror(errno) + "); the end that made it may " +
             "let it in: chmod a+w " + path;
    }
    return {};
  }
  const std::optional<bool> listens = there ? somebody_listens(path) : false;
  if (!listens) {
    return "whether a process listens at " + path + " cannot be told (" + std::strerror(errno) + "); raise `ulimit -n`";
  }
  if (*listens) {
    return "the socket " + path + " is another process's; name another, or be the end that connects to it";
  }
  if (there) return "the socket " + path + " was left behind by a process that was killed; remove it: rm " + path;
  if (::access(folder.c_str(), W_OK) != 0) {
    return "this user cannot make a socket in " + folder + " (" + std::strerror(errno) + "); name another folder";
  }
  return {};
}

}  // namespace fairlead::soft
