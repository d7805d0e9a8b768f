#include "verbs/soft/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace fairlead::soft {

template <typename Event>
EventQueue<Event>::EventQueue() : fd_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}

template <typename Event>
void EventQueue<Event>::push(const Event& event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

template <typename Event>
bool EventQueue<Event>::wait_one() noexcept {
  std::uint64_t one = 0;
  return ::read(fd_.get(), &one, sizeof(one)) == sizeof(one);
}

template class EventQueue<ibv_cq*>;
template class EventQueue<ibv_async_event>;

CompChannel::CompChannel(ibv_context* owner) : ibv_comp_channel{owner, -1, 0} { fd = queue.fd(); }

}  // namespace fairlead::soft
