#include "datapath/lane/lane.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/system/core_sharing.h"
#include "base/system/no_thread.h"
#include "base/system/quiet_thread.h"

namespace fairlead::datapath {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

constexpr microseconds kNap{200};     // how long the lane's thread stands back while application threads drive; where
                                      // one drives and works in turn, nothing moves for one or two of them
constexpr milliseconds kPatience{8};  // since the last drive, where one does so without a pause
constexpr milliseconds kNapsInDoubt{8};    // naps so long show that
constexpr std::uint64_t kBusyDrives = 10;  // rounds of such a kNap
constexpr milliseconds kLongNap{100};      // the same while such a driver sleeps
constexpr milliseconds kRecheck{5};        // how often a thread that waits for another's driving looks again

class Closure final : public Submission {
 public:
  explicit Closure(std::function<void()> work) : work_(std::move(work)) {}
  void run() noexcept override {
    const std::unique_ptr<Closure> self(this);
    work_();
  }

 private:
  std::function<void()> work_;
};

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

bool change(const PrivateFd& epoll, int how, int fd, std::uint32_t events) noexcept {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(epoll.get(), how, fd, &event) == 0;
}

}  // namespace

Lane::Lane(Domain& domain, Progress mode, std::chrono::microseconds spin, std::size_t number)
    : domain_(domain),
      mode_(mode),
      spin_(spin),
      number_(number),
      epoll_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))),
      kick_fd_(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      patience_(kPatience) {
  if (valid() && !watch(kick_fd_.get())) epoll_.reset();
}

Lane::~Lane() { stop(); }

Status Lane::start() {
  if (mode_ == Progress::kApplication) return {};
  // As long as the system allows, which is 15 characters.
  const std::string name = number_ == 0 ? "fairlead-lane" : "fairlead-lane" + std::to_string(number_);
  try {
    thread_ = quiet_thread(name.c_str(), [this] { thread_main(); });
  } catch (const std::system_error& error) {
    return no_thread(fmt::format("lane {} of the engine", number_), error);
  }
  return {};
}

void Lane::stop() {
  stopping_.store(true);
  kick();
  waiters_.wake_all();
  if (thread_.joinable()) thread_.join();
}

bool Lane::watch(int fd) noexcept { return change(epoll_, EPOLL_CTL_ADD, fd, EPOLLIN); }
bool Lane::reserve_watch(int fd) noexcept { return change(epoll_, EPOLL_CTL_ADD, fd, 0); }
void Lane::watch_reserved(int fd) noexcept { change(epoll_, EPOLL_CTL_MOD, fd, EPOLLIN); }
void Lane::unwatch(int fd) noexcept { change(epoll_, EPOLL_CTL_DEL, fd, 0); }

void Lane::submit(Submission& work) noexcept {
  if (may_drive() && try_acquire()) {
    run_submissions();  // what came before it
    work.run();
    waiters_.wake_done();
    release();
  } else {
    Submission* newest = submitted_.load(std::memory_order_relaxed);
    do {
      work.next_ = newest;
    } while (!submitted_.compare_exchange_weak(newest, &work));
    // Whoever drives now either sees this work while driving, or looks again after giving the token up (release()).
    if (may_drive() && try_acquire()) {
      run_submissions();
      release();
    }
  }
  // A sleeper computed what to wait for before this work came.
  if (sleepers_.load() != 0) kick();
}

void Lane::submit(std::function<void()> work) { submit(*new Closure(std::move(work))); }

void Lane::call(const std::function<void()>& work) {
  std::atomic<bool> ran{false};
  submit([&] {
    work();
    ran.store(true, std::memory_order_release);
  });
  wait_until([&] { return ran.load(std::memory_order_acquire); }, Clock::time_point::max());
}

bool Lane::run_submissions() noexcept {
  if (submitted_.load() == nullptr) return false;
  Submission* newest = submitted_.exchange(nullptr);
  Submission* oldest = nullptr;
  while (newest != nullptr) {
    Submission* next = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Submission* next = oldest->next_;  // run() may recycle the node
    oldest->run();
    oldest = next;
  }
  return true;
}

void Lane::release() noexcept {
  driven_.store(false);
  // Work that came while we held the token and whose submitter therefore left it to us.
  while (submitted_.load() != nullptr && try_acquire()) {
    run_submissions();
    driven_.store(false);
  }
  if (may_drive()) waiters_.call_one();
}

// What was to wake who sleeps may have been taken by this thread.
void Lane::leave() noexcept {
  domain_.settle();
  if (moved_ && sleepers_.load() != 0 && !arm_domain()) kick();
  release();
}

bool Lane::poll_once() noexcept {
  count_drive();
  if (!may_drive() || !try_acquire()) return false;
  const bool did = advance();
  if (did) waiters_.wake_done();
  leave();
  return did;
}

bool Lane::wait_until(const std::function<bool()>& done, Clock::time_point deadline) {
  while (!done()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return false;
    if (may_drive() && try_acquire()) {
      drive(done, now, deadline);
      leave();
    } else {
      await_change(done, deadline);
    }
  }
  return true;
}

bool Lane::wait_for(const std::function<bool()>& done, std::chrono::nanoseconds timeout) {
  return drive_for_a_moment(done) || wait_until(done, deadline_after(timeout));
}

bool Lane::drive_for_a_moment(const std::function<bool()>& done) noexcept {
  constexpr int kRounds = 16;
  bool ended = done();
  if (ended || !may_drive() || !try_acquire()) return ended;
  for (int round = 0; round < kRounds && !ended; ++round) {
    count_drive();
    if (advance()) waiters_.wake_done();
    ended = done();
  }
  leave();
  return ended;
}

bool Lane::drive(const std::function<bool()>& done, Clock::time_point now, Clock::time_point deadline) noexcept {
  constexpr int kRoundsPerClockRead = 16;
  Clock::time_point idle_since = now;
  int idle_rounds = 0;
  bool busy = false;  // since the clock was read
  while (!done()) {
    count_drive();
    if (advance()) {
      waiters_.wake_done();
      idle_rounds = 0;
      busy = true;
      continue;
    }
    if (++idle_rounds % kRoundsPerClockRead != 0) continue;
    relax();  // not each round, which is short beside what a CPU makes of this
    now = Clock::now();
    if (now >= deadline) return done();
    if (std::exchange(busy, false)) idle_since = now;
    if (now - idle_since < spin_) {
      this_threads_core().offer(now, idle_since);
      continue;
    }
    if (arm()) {
      const auto left = std::min<Clock::duration>(deadline - now, std::chrono::seconds(10));
      sleep_in_epoll(std::min(domain_.sleep_limit(), std::chrono::ceil<milliseconds>(left)));
    }
  }
  return true;
}

/// Looks for a while whether what another thread drives brings it, or that thread leaves.
bool Lane::spin_until(const std::function<bool()>& done, Clock::time_point deadline) noexcept {
  if (waiters_.any() || spinning_.exchange(true)) return done();
  const Clock::time_point end = std::min(deadline, Clock::now() + spin_);
  bool ended = done();
  while (!ended && driven_.load() && Clock::now() < end) {
    for (int i = 0; i < 16 && !ended; ++i) {
      relax();
      ended = done();
    }
  }
  spinning_.store(false);
  return ended;
}

bool Lane::await_change(const std::function<bool()>& done, Clock::time_point deadline) {
  if (spin_until(done, deadline)) return true;
  // Bounded, since the driver may look for waiters just before this one is counted.
  waiters_.sleep(&done, [this] { return may_drive() && !driven_.load(); }, std::min(deadline, Clock::now() + kRecheck));
  return done();
}

bool Lane::arm() noexcept {
  sleepers_.fetch_add(1);  // before another drives, which would not see that somebody relies on being woken
  if (arm_domain()) return true;
  sleepers_.fetch_sub(1);
  return false;
}

bool Lane::arm_domain() noexcept {
  armed_ = true;
  moved_ = false;
  rounds_ = 0;
  return domain_.arm();
}

void Lane::disarm() noexcept {
  armed_ = false;
  domain_.disarm();
}

void Lane::kick() noexcept { ::eventfd_write(kick_fd_.get(), 1); }

void Lane::sleep_in_epoll(milliseconds limit) noexcept {
  if (submitted_.load() == nullptr && !stopping_.load()) {
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    epoll_event events[8];
    const int n = ::epoll_wait(epoll_.get(), events, 8, static_cast<int>(limit.count()));
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == kick_fd_.get()) return end_sleep();
    }
  }
  sleepers_.fetch_sub(1);
}

int Lane::begin_sleep(milliseconds& limit) noexcept {
  if (!try_acquire()) return -1;
  const bool armed = arm();
  if (armed) limit = std::min(limit, domain_.sleep_limit());
  release();
  if (!armed) return -1;
  if (submitted_.load() == nullptr && !stopping_.load()) {
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    return epoll_.get();
  }
  sleepers_.fetch_sub(1);
  return -1;
}

// Who takes a kick may not be who drives: another that sleeps, with the token, is then to have it, too.
void Lane::end_sleep() noexcept {
  eventfd_t value;
  const bool was_kicked = ::eventfd_read(kick_fd_.get(), &value) == 0;
  const bool others = sleepers_.fetch_sub(1) != 1;
  if (was_kicked && others && (submitted_.load() != nullptr || stopping_.load())) kick();
}

void Lane::stand_back() noexcept {
  std::uint64_t seen = 0, now = application_drives_.load(std::memory_order_relaxed);
  microseconds nap = kNap;
  do {
    seen = now;
    if (driven_.load() && sleepers_.load() != 0) {  // it may do so for long; at its end it calls
      waiters_.sleep(nullptr, [this] { return stopping_.load(); }, Clock::now() + kLongNap);
    } else if (nap < kNapsInDoubt || !patience_) {
      std::this_thread::sleep_for(nap);
    } else {
      patience_.begin();
      pollfd over{patience_.fd(), POLLIN, 0};
      ::poll(&over, 1, -1);
      patience_.end();
    }
    now = application_drives_.load(std::memory_order_relaxed);
    const bool busy = driven_.load() && now - seen >= kBusyDrives * static_cast<std::uint64_t>(nap / kNap);
    nap = busy ? std::min<microseconds>(2 * nap, kNapsInDoubt) : kNap;
  } while (!stopping_.load() && (driven_.load() || now != seen));
}

void Lane::thread_main() noexcept {
  std::uint64_t seen = application_drives_.load();
  Clock::time_point idle_since = Clock::now();
  while (!stopping_.load()) {
    // An application thread drives, or holds the token asleep.
    const bool others = application_drives_.load(std::memory_order_relaxed) != seen || sleepers_.load() != 0;
    if (mode_ == Progress::kAuto && others) {
      stand_back();
      seen = application_drives_.load(std::memory_order_relaxed);
    }
    if (!try_acquire()) {  // a submitter, for an instant
      relax();
      continue;
    }
    bool armed = false;
    const bool did = advance();
    if (did) waiters_.wake_done();
    const Clock::time_point now = Clock::now();
    if (did) idle_since = now;
    if (now - idle_since > spin_) armed = arm();
    const milliseconds limit = armed ? domain_.sleep_limit() : milliseconds(0);
    release();
    // Without the token, so that an application thread takes over without a hand-over.
    if (armed) {
      sleep_in_epoll(limit);
    } else {
      this_threads_core().offer(now, idle_since);
    }
  }
}

Clock::time_point deadline_after(std::chrono::nanoseconds timeout) noexcept { return later(Clock::now(), timeout); }

}  // namespace fairlead::datapath
