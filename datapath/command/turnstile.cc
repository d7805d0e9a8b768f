#include "datapath/command/turnstile.h"

#include <algorithm>

#include "base/clock.h"

namespace fairlead::datapath::command {

Turnstile::Member Turnstile::join(double share) {
  const std::lock_guard lock(mutex_);
  return shares_.join(share, Clock::now());
}

void Turnstile::set_share(Member member, double share) {
  const std::lock_guard lock(mutex_);
  shares_.set_share(member, share, Clock::now());
  wake_all();  // who waits does so until its old share allows it
}

Turnstile::Turn Turnstile::enter(Member member, const std::atomic<bool>& stopping, const Turn& ended) {
  Waiting self;
  std::unique_lock lock(mutex_);
  Queue& queue = waiting_[member];
  queue.push_back(&self);
  shares_.want(member);
  if (ended.number != 0) end(ended, Clock::now());
  while (self.turn.number == 0) {
    if (stopping.load()) {
      queue.remove(&self);
      if (queue.empty()) shares_.rest(member);
      return {};
    }
    const Clock::time_point again = give(Clock::now());
    if (self.turn.number != 0) break;
    if (again == Clock::time_point::max()) {
      self.given.wait(lock);
    } else {
      self.given.wait_until(lock, again);
    }
  }
  return self.turn;
}

Turnstile::Clock::time_point Turnstile::give(Clock::time_point now) {
  if (under_way_ != 0) {
    if (now < overruns_at_) return overruns_at_;
    under_way_ = 0;
    overruns_.fetch_add(1, std::memory_order_relaxed);
  }
  const Shares::Choice choice = shares_.next(now);
  if (!choice.member) return choice.again;
  Queue& queue = waiting_[*choice.member];
  Waiting& next = *queue.front();
  queue.pop_front();
  if (queue.empty()) shares_.rest(*choice.member);
  under_way_ = ++turns_;
  overruns_at_ = later(now, longest_turn_);
  next.turn = {*choice.member, under_way_, now};
  next.given.notify_one();
  return overruns_at_;
}

void Turnstile::leave(const Turn& turn) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  end(turn, now);
  if (under_way_ != 0) return;
  give(now);
  if (under_way_ != 0) return;
  // Nobody may yet: somebody has to look again sooner than it thinks.
  const auto any = std::ranges::find_if(waiting_, [](const auto& each) { return !each.second.empty(); });
  if (any != waiting_.end()) any->second.front()->given.notify_one();
}

void Turnstile::end(const Turn& turn, Clock::time_point now) {
  shares_.ran(turn.member, now - turn.began);
  if (under_way_ == turn.number) under_way_ = 0;
}

void Turnstile::wake() {
  const std::lock_guard lock(mutex_);
  wake_all();
}

void Turnstile::wake_all() {
  for (auto& [member, queue] : waiting_) {
    for (Waiting* const waiting : queue) waiting->given.notify_one();
  }
}

}  // namespace fairlead::datapath::command
