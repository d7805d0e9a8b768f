#include "cli/server/ready_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fairlead::cli {
namespace {

/// None: there is no regular file.
UniqueFd open_regular(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

bool lock(const UniqueFd& fd) { return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }

/// Unless another file has that name by now.
void remove(const std::string& path, const UniqueFd& fd) {
  struct stat named{}, ours{};
  if (!fd || ::lstat(path.c_str(), &named) != 0 || ::fstat(fd.get(), &ours) != 0) return;
  if (named.st_dev == ours.st_dev && named.st_ino == ours.st_ino) ::unlink(path.c_str());
}

}  // namespace

ReadyFile::ReadyFile(std::string path) : path_(std::move(path)), fd_(open_regular(path_)) {
  static_cast<void>(lock(fd_));  // where a file system has no locks, what a killed server leaves stays
}

ReadyFile::~ReadyFile() { remove(path_, fd_); }

void ReadyFile::remove_stale(const std::string& path) {
  const UniqueFd fd = open_regular(path);
  if (lock(fd)) remove(path, fd);
}

}  // namespace fairlead::cli
