#include "datapath/lane/waiters.h"

#include <algorithm>

namespace fairlead::datapath {

void Waiters::sleep(const Condition* done, const Condition& stay_awake, Clock::time_point deadline) {
  Waiter self{done};
  std::unique_lock lock(mutex_);
  waiting_.push_back(&self);
  count_.store(waiting_.size());
  if ((done == nullptr || !(*done)()) && !stay_awake()) {
    self.up.wait_until(lock, deadline, [&self] { return self.awake; });
  }
  if (self.called) calling_ = false;
  std::erase(waiting_, &self);
  count_.store(waiting_.size());
}

void Waiters::wake(Waiter& waiter) noexcept {
  if (waiter.awake) return;
  waiter.awake = true;
  wakes_.fetch_add(1, std::memory_order_relaxed);
  waiter.up.notify_one();
}

void Waiters::wake_done() noexcept {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiting_) {
    if (!waiter->awake && waiter->done != nullptr && (*waiter->done)()) wake(*waiter);
  }
}

void Waiters::call_one() noexcept {
  if (!any()) return;
  const std::lock_guard lock(mutex_);
  if (calling_) return;
  Waiter* chosen = nullptr;
  for (Waiter* waiter : waiting_) {
    if (waiter->awake) continue;
    if (chosen == nullptr || (chosen->done == nullptr && waiter->done != nullptr)) chosen = waiter;
  }
  if (chosen == nullptr) return;
  calling_ = chosen->called = true;
  wake(*chosen);
}

void Waiters::wake_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiting_) wake(*waiter);
}

}  // namespace fairlead::datapath
