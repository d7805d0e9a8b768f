#include "bench/commands/blocking_calls.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace fairlead::bench {
namespace {

constexpr std::size_t kRequest = 64, kAnswer = 16;
constexpr std::byte kSpins{1};

Status failed(const char* what) {
  return {Code::kUnavailable, fmt::format("blocking calls: cannot {}: {}", what, std::strerror(errno))};
}

bool receive(int fd, std::byte* to, std::size_t bytes, bool spins) {
  for (std::size_t have = 0; have < bytes;) {
    const ssize_t got = ::recv(fd, to + have, bytes - have, spins ? MSG_DONTWAIT : 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && spins && errno == EAGAIN) {
      ::sched_yield();  // both ends may have been put on one core
      continue;
    }
    if (got <= 0) return false;
    have += static_cast<std::size_t>(got);
  }
  return true;
}

[[noreturn]] void answer(int listener, pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
  for (const int ending : {SIGINT, SIGTERM}) ::signal(ending, SIG_IGN);  // it ends with who asks
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  std::byte bytes[kRequest]{};
  while (receive(fd, bytes, kRequest, bytes[0] == kSpins)) {  // as the request before said
    if (::send(fd, bytes, kAnswer, MSG_NOSIGNAL) != static_cast<ssize_t>(kAnswer)) break;
  }
  ::_exit(0);
}

}  // namespace

Result<BlockingCalls> BlockingCalls::start() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (!listener.valid() || ::bind(listener.get(), any, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &size) != 0) {
    return failed("listen");
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return failed("fork");
  if (child == 0) answer(listener.get(), parent);
  UniqueFd connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BlockingCalls calls(std::move(connection), child);
  const int one = 1;
  if (!calls.connection_.valid() || ::connect(calls.connection_.get(), any, size) != 0 ||
      ::setsockopt(calls.connection_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0) {
    return failed("connect");
  }
  return calls;
}

BlockingCalls::BlockingCalls(BlockingCalls&& other) noexcept
    : connection_(std::move(other.connection_)), child_(std::exchange(other.child_, -1)) {}

BlockingCalls::~BlockingCalls() {
  if (child_ < 0) return;
  connection_.reset();
  ::kill(child_, SIGKILL);  // it may not have been connected to
  ::waitpid(child_, nullptr, 0);
}

bool BlockingCalls::call(bool next_spins) {
  std::byte bytes[kRequest]{};
  if (next_spins) bytes[0] = kSpins;
  return ::send(connection_.get(), bytes, kRequest, MSG_NOSIGNAL) == static_cast<ssize_t>(kRequest) &&
         receive(connection_.get(), bytes, kAnswer, next_spins);
}

Result<Histogram> BlockingCalls::measure(std::chrono::nanoseconds duration, const std::atomic<int>& stop, bool spins) {
  using Clock = std::chrono::steady_clock;
  Histogram times;
  if (!call(spins)) return failed("call");
  const Clock::time_point end = Clock::now() + duration;
  for (Clock::time_point begin = Clock::now(); begin < end && stop == 0;) {
    if (!call(spins)) return failed("call");
    const Clock::time_point now = Clock::now();
    times.record(static_cast<std::uint64_t>((now - begin).count()));
    begin = now;
  }
  if (!call(false)) return failed("call");  // the other end is to sleep
  return times;
}

}  // namespace fairlead::bench
