// Waiting for what any lane brings. With one lane that is waiting in it. With several, their threads drive and wake
// who waits here; where there are none, who waits drives them all, by turns.
#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/system/core_sharing.h"
#include "datapath/engine/engine_impl.h"

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRecheck{5};      // of who sleeps while others drive, or may
constexpr milliseconds kOthersDrive{1};  // the same while another thread drives a lane that has none of its own

}  // namespace

bool EngineImpl::poll_once() noexcept {
  bool did = false;
  for (const auto& lane : lanes_) did |= lane->lane().poll_once();
  return did;
}

bool EngineImpl::wait_until(const std::function<bool()>& done, Clock::time_point deadline) {
  if (lanes_.size() == 1) return lanes_.front()->lane().wait_until(done, deadline);
  if (config().progress == Progress::kApplication) return drive_all_until(done, deadline);
  const Clock::time_point since = Clock::now();
  while (!done()) {
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return done();
    if (now - since < config().spin) {
      this_threads_core().offer(now, since);
      continue;
    }
    // Bounded, since a driver may look for waiters just before this one is counted.
    commons_.waiters.sleep(&done, [this] { return commons_.stopped.load(); }, std::min(deadline, now + kRecheck));
    if (commons_.stopped.load() && !done())
      std::this_thread::yield();  // not for long: the conditions of waits hold then
  }
  return true;
}

bool EngineImpl::drive_all_until(const std::function<bool()>& done, Clock::time_point deadline) {
  Clock::time_point idle_since = Clock::now();
  while (!done()) {
    const bool did = poll_once();
    const Clock::time_point now = Clock::now();
    if (now >= deadline) return done();
    if (did) idle_since = now;
    if (now - idle_since > config().spin) {
      sleep_for_all(deadline);
    } else {
      this_threads_core().offer(now, idle_since);
    }
  }
  return true;
}

// Another that waits may take what this thread is woken by, before it has looked.
void EngineImpl::sleep_for_all(Clock::time_point deadline) {
  milliseconds limit = std::min(kRecheck, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
  std::vector<pollfd> asleep;
  std::vector<Lane*> lanes;
  for (const auto& lane : lanes_) {
    const int fd = lane->lane().begin_sleep(limit);
    if (fd < 0) continue;
    asleep.push_back({fd, POLLIN, 0});
    lanes.push_back(&lane->lane());
  }
  if (lanes.size() < lanes_.size()) limit = lanes.empty() ? milliseconds(0) : std::min(limit, kOthersDrive);
  if (limit.count() > 0) ::poll(asleep.data(), asleep.size(), static_cast<int>(limit.count()));
  for (Lane* lane : lanes) lane->end_sleep();
}

}  // namespace fairlead::datapath
