#include "datapath/engine/listener.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/system/no_watch.h"
#include "datapath/session/control_socket.h"
#include "fairlead/log.h"

namespace fairlead::datapath {
namespace {

constexpr std::chrono::seconds kPause{1};
constexpr int kBatch = 16;

}  // namespace

Status Listener::open(const std::string& listen, int epoll) {
  Result<HostPort> at = parse_host_port(listen);
  if (!at) return at.error();
  Result<UniqueFd> fd = start_listen(at->host == "localhost" ? "127.0.0.1" : at->host, at->port);
  if (!fd) return fd.error();
  socket_ = PrivateFd(std::move(*fd));
  address_ = socket_address(socket_.get(), false);
  epoll_ = epoll;
  return watch();
}

Status Listener::watch() {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return no_watch(fmt::format("the socket at {}", address_), errno);
  }
  again_at_ = Clock::time_point::max();
  return {};
}

void Listener::look_again() {
  const Status watched = watch();
  if (watched.ok()) return;
  log(LogLevel::kError, fmt::format("{}; trying again in {} s", watched.message(), kPause.count()));
  again_at_ = Clock::now() + kPause;
}

void Listener::accept(std::size_t sessions, const std::function<void(UniqueFd)>& take) {
  for (int turn = 0; turn < kBatch; ++turn) {
    UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      take(std::move(fd));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // Out of descriptors or memory: the listener stays readable.
    log(LogLevel::kError, fmt::format("cannot accept on {}: {}; trying again in {} s. {} sessions are open; raise "
                                      "`ulimit -n` or systemd LimitNOFILE=",
                                      address_, std::strerror(errno), kPause.count(), sessions));
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, socket_.get(), nullptr);
    again_at_ = Clock::now() + kPause;
    return;
  }
}

}  // namespace fairlead::datapath
