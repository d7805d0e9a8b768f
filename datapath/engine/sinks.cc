#include "datapath/engine/sinks.h"

#include <sys/epoll.h>

#include <algorithm>

namespace fairlead::datapath {

int Sinks::fd() {
  if (lanes_.size() == 1) return lanes_.front()->fd();
  const std::lock_guard lock(making_);
  if (all_) return all_.get();
  all_ = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  for (EventQueues* lane : lanes_) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (all_ && ::epoll_ctl(all_.get(), EPOLL_CTL_ADD, lane->fd(), &event) != 0) all_.reset();
  }
  return all_.get();
}

bool Sinks::any_events() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const EventQueues* lane) { return lane->any_events(); });
}

bool Sinks::any_accepted() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const EventQueues* lane) { return lane->any_accepted(); });
}

template <typename Take>
std::invoke_result_t<Take, EventQueues&> Sinks::first_of(Take take) {
  const std::size_t begin = lanes_.size() > 1 ? turn_.fetch_add(1, std::memory_order_relaxed) : 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (auto found = take(*lanes_[(begin + i) % lanes_.size()])) return found;
  }
  return nullptr;
}

std::shared_ptr<EventSource> Sinks::take_any_event(Event& event, Taken& taken) {
  return first_of([&](EventQueues& lane) { return lane.take_any_event(event, taken); });
}

std::shared_ptr<EventSource> Sinks::take_accepted() {
  return first_of([](EventQueues& lane) { return lane.take_accepted(); });
}

Submission* Sinks::take_completed() {
  return first_of([](EventQueues& lane) { return lane.take_completed(); });
}

}  // namespace fairlead::datapath
