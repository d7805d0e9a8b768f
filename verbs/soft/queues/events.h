// Event queues behind file descriptors: completion channels and a context's asynchronous events.
//
// The descriptor is an eventfd that counts queued events, so it polls readable as libibverbs' own descriptors do, and
// O_NONBLOCK set by its user is honoured. A forked child shares neither it nor its count: its copy of a queue is empty
// and stays so. Threads: every function may be called from any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <mutex>

#include "base/private_fd.h"
#include "base/system/fork_mark.h"

namespace fairlead::soft {

/// Values with a descriptor that is readable while there are any.
template <typename Event>
class EventQueue {
 public:
  EventQueue();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// False in a forked child: it must wait neither for an acknowledgement nor for a lock, whose thread is the parent's.
  [[nodiscard]] bool is_mine() const noexcept { return fork_mark_.is_mine(); }
  void push(const Event& event);
  /// Waits unless the descriptor is non-blocking; false with errno set, in a child ENODEV. A thread that waits may be
  /// cancelled. Calls taken(event) before remove_if can run, so that an object counts its delivered events before it
  /// may be destroyed.
  template <typename Taken>
  [[nodiscard]] bool pop(Event& event, Taken&& taken) {
    while (wait_one()) {
      const std::lock_guard lock(mutex_);
      if (events_.empty()) continue;  // its object was destroyed meanwhile
      event = events_.front();
      events_.pop_front();
      taken(event);
      return true;
    }
    return false;
  }
  /// Takes out the events that match, and the descriptor's count of them.
  template <typename Match>
  void remove_if(Match&& match) {
    if (!is_mine()) return;
    const std::lock_guard lock(mutex_);
    for (std::size_t gone = std::erase_if(events_, match); gone != 0 && uncount_one(); --gone) {
    }
  }

 private:
  [[nodiscard]] bool wait_one();  // a cancellation point, so not noexcept
  /// False where a pop() has done so already.
  [[nodiscard]] bool uncount_one() noexcept;

  PrivateFd fd_;
  const ForkMark fork_mark_;
  std::mutex mutex_;
  std::deque<Event> events_;
};

struct CompChannel : ibv_comp_channel {
  explicit CompChannel(ibv_context* owner);
  EventQueue<ibv_cq*> queue;
};

/// What an asynchronous event is about, and so which member of its element is set.
enum class AsyncSubject : std::uint8_t { kQp, kCq, kSrq, kDevice };
[[nodiscard]] AsyncSubject subject_of(ibv_event_type type) noexcept;

using AsyncQueue = EventQueue<ibv_async_event>;

extern template class EventQueue<ibv_cq*>;
extern template class EventQueue<ibv_async_event>;

[[nodiscard]] inline CompChannel& impl(ibv_comp_channel* channel) noexcept {
  return static_cast<CompChannel&>(*channel);
}

}  // namespace fairlead::soft
