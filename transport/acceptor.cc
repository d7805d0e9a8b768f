#include "transport/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace fairlead::datapath {

namespace {
constexpr Nanos kPause = 100 * kMillisecond;
}

bool Acceptor::open(PrivateFd listening) noexcept {
  listening_ = std::move(listening);
  watch_ = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  return watch_ && watch(listening_.get());
}

bool Acceptor::replace(PrivateFd listening) noexcept {
  if (!watch(listening.get())) return false;
  unwatch(listening_.get());
  listening_ = std::move(listening);
  paused_until_.reset();
  return true;
}

bool Acceptor::watch(int fd) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(watch_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Acceptor::unwatch(int fd) noexcept { ::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, fd, nullptr); }

bool Acceptor::may_accept(Nanos now) noexcept {
  if (!paused_until_) return true;
  if (now < *paused_until_) return false;
  if (!watch(listening_.get())) {  // nobody would hear of who comes
    paused_until_ = now + kPause;
    return false;
  }
  paused_until_.reset();
  return true;
}

PrivateFd Acceptor::accept_one() noexcept {
  return PrivateFd(UniqueFd(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

int Acceptor::pause_if_full(Nanos now) noexcept {
  const int error = errno;
  if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return 0;
  pollfd came{listening_.get(), POLLIN, 0};
  if (::poll(&came, 1, 0) == 0) return 0;  // accept4 looks for a descriptor before it looks who is there
  unwatch(listening_.get());
  paused_until_ = now + kPause;
  return error;
}

}  // namespace fairlead::datapath
