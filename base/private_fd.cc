#include "base/private_fd.h"

#include <fcntl.h>
#include <pthread.h>

#include <mutex>
#include <set>

#include "base/system/fork_mark.h"
#include "base/system/no_cancellation.h"

namespace fairlead {
namespace {

// Never destroyed: a device may outlive every static.
struct Registry {
  std::mutex mutex;
  std::set<int> fds;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

void before_fork() { registry().mutex.lock(); }
void in_parent() { registry().mutex.unlock(); }

void in_child() {
  const NoCancellation whole;
  Registry& own = registry();
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : own.fds) {
    if (null) {
      ::dup3(null.get(), fd, O_CLOEXEC);
    } else {
      ::close(fd);
    }
  }
  own.fds.clear();
  own.mutex.unlock();
}

}  // namespace

void PrivateFd::watch_forks() {
  static const int kHandlers = [] {
    static_cast<void>(ForkMark());  // its handler first, as it is called first in the child: later ones may ask
    return ::pthread_atfork(&before_fork, &in_parent, &in_child);
  }();
  static_cast<void>(kHandlers);
}

PrivateFd::PrivateFd(UniqueFd fd) : fd_(std::move(fd)) {
  watch_forks();
  if (!fd_) return;
  const std::lock_guard lock(registry().mutex);
  registry().fds.insert(fd_.get());
}

PrivateFd& PrivateFd::operator=(PrivateFd&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  return *this;
}

void PrivateFd::reset() noexcept {
  if (!fd_) return;
  const std::lock_guard lock(registry().mutex);
  registry().fds.erase(fd_.get());
  fd_.reset();
}

}  // namespace fairlead
