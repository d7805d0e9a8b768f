#include "datapath/placement/core_claims.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace fairlead::datapath {
namespace {

struct flock lock_of(unsigned cpu) noexcept {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(cpu);
  lock.l_len = 1;
  return lock;
}

// Every user's engines are to see each other. Where it is there already it is opened without O_CREAT, which kernels
// refuse for files of others in folders that everybody may write to (fs.protected_regular).
UniqueFd open_shared(const std::string& file) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  constexpr mode_t kEverybody = 0666;
  for (int tries = 0; tries < 2; ++tries) {
    UniqueFd fd(::open(file.c_str(), kFlags));
    if (fd.valid() || errno != ENOENT) return fd;
    fd = UniqueFd(::open(file.c_str(), kFlags | O_CREAT | O_EXCL, kEverybody));
    if (fd.valid()) ::fchmod(fd.get(), kEverybody);  // whatever the umask
    if (fd.valid() || errno != EEXIST) return fd;
  }
  return {};
}

}  // namespace

CoreClaims::CoreClaims(const std::string& file) : file_(open_shared(file)) {}

bool CoreClaims::is_taken(unsigned cpu) const noexcept {
  struct flock lock = lock_of(cpu);
  return file_ && ::fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool CoreClaims::claim(unsigned cpu) noexcept {
  struct flock lock = lock_of(cpu);
  return !file_ || ::fcntl(file_.get(), F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

}  // namespace fairlead::datapath
