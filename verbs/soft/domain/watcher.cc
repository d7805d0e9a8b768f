#include "verbs/soft/domain/watcher.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include "base/system/quiet_thread.h"
#include "base/system/uncancelled.h"
#include "verbs/soft/domain/domain.h"

namespace fairlead::soft {
namespace {

constexpr Nanos kTick = 1 * kMillisecond;
constexpr unsigned kLooksAtSteadyPolls = 16;
// Longer than a tick of the kernel's, before which it would have to set the clock to this timer each time.
constexpr std::chrono::milliseconds kPatience{5};
constexpr Nanos kLinger = 50 * kMicrosecond;
constexpr Nanos kWithoutOffer = 500 * kMicrosecond;
constexpr Nanos kForever = ~Nanos{0};

}  // namespace

Watcher::Watcher(Domain& domain, int news, std::function<void()> on_news)
    : domain_(domain),
      alarm_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      patience_(kPatience),
      news_(news),
      on_news_(std::move(on_news)) {
  if (!alarm_ || !patience_) throw std::system_error(errno, std::generic_category(), "no descriptor for the watcher");
  const auto alarm = [this] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = uncancelled::write(alarm_.get(), &one, sizeof(one));
  };
  domain_.set_watcher(alarm, patience_);
}

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(alarm_.get(), &one, sizeof(one));
  thread_.join();
}

void Watcher::start() {
  const std::scoped_lock lock(starting_);
  if (!thread_.joinable()) thread_ = quiet_thread("softroce", [this] { run(); });
}

// Sleeps until the alarm, news, a packet at one of the ports or the time.
void Watcher::wait(std::span<const int> ports, long long nanoseconds) noexcept {
  std::vector<pollfd> fds{{alarm_.get(), POLLIN, 0}, {news_, POLLIN, 0}};
  for (const int fd : ports) fds.push_back({fd, POLLIN, 0});
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
  ::ppoll(fds.data(), fds.size(), nanoseconds < 0 ? nullptr : &time, nullptr);
  if (fds[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(alarm_.get(), &count, sizeof(count));
  }
  if (fds[1].revents != 0) on_news_();
}

void Watcher::wait_while_polled() noexcept {
  const int over = patience_.fd();
  patience_.begin();
  wait({&over, 1}, -1);
  patience_.end();
}

bool Watcher::finds_something() noexcept {
  const Nanos now = steady_clock().now();
  const DomainLock lock(domain_);
  const bool found = domain_.progress();
  if (found) linger_until_ = now + kLinger;
  offers_core_ = !found || now >= offer_core_at_;
  return now < linger_until_;
}

void Watcher::run() noexcept {
  std::uint64_t polls_seen = domain_.activity().polls;
  unsigned looks = 0;  // in a row that found it polled
  while (!stop_.load()) {
    const std::uint64_t polls = domain_.activity().polls;
    if (polls != polls_seen && domain_.armed() == 0) {
      polls_seen = polls;
      if (++looks <= kLooksAtSteadyPolls) {
        wait({}, kTick);
      } else {
        wait_while_polled();
        polls_seen = domain_.activity().polls;
      }
      continue;
    }
    polls_seen = polls;
    looks = 0;
    if (finds_something()) {
      if (offers_core_) {
        ::sched_yield();  // who sends more may need this core
        offer_core_at_ = steady_clock().now() + kWithoutOffer;
      }
      continue;
    }
    Nanos sleep = kForever;
    std::optional<std::vector<int>> ports;
    {
      const DomainLock lock(domain_);
      if (domain_.progress()) continue;  // there may be more
      const Nanos deadline = domain_.next_deadline();
      if (deadline != 0) sleep = deadline > domain_.now() ? deadline - domain_.now() : 0;
      if (sleep != 0) ports = domain_.prepare_to_wait();
      domain_.set_watcher_sleep(deadline != 0 ? deadline : kForever);
    }
    if (ports) {
      wait(*ports, sleep == kForever ? -1 : static_cast<long long>(sleep));
    } else {
      ::sched_yield();  // who sends what is waited for may need this core
    }
    const DomainLock lock(domain_);
    domain_.set_watcher_sleep(0);
  }
}

}  // namespace fairlead::soft
