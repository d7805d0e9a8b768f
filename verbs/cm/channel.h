// Event channels: queues of rdma_cm events behind a file descriptor that is readable while there are any.
//
// One lock, events_mutex(), guards all channels, which channel an identifier has, and the counts that let an identifier
// wait until its events are acknowledged. Order: a domain's lock, then this one.
// O_NONBLOCK, set on the descriptor by its user, is honoured. A thread that waits in a channel while another destroys
// it waits on for ever, as in the kernel's: programs (rping) destroy their channel so, and end.
// A forked child does not share the descriptor, and its copy of a channel gives no events. It must not take the lock,
// which a thread of the parent's may hold.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

#include "base/private_fd.h"
#include "base/system/fork_mark.h"

namespace fairlead::cm {

class Id;

/// What rdma_get_cm_event hands out; its event comes first, so that the program's pointer leads back here.
struct EventRecord {
  rdma_cm_event event{};
  Id* owner = nullptr;  // whose event it is: of a request, the listener
  std::array<std::byte, 256> private_data{};
};

[[nodiscard]] inline EventRecord& record_of(rdma_cm_event* event) noexcept {
  static_assert(offsetof(EventRecord, event) == 0);
  return *reinterpret_cast<EventRecord*>(event);
}

[[nodiscard]] std::mutex& events_mutex() noexcept;
/// Signalled when an event is acknowledged.
[[nodiscard]] std::condition_variable& acknowledged() noexcept;

class Channel final : public rdma_event_channel {
 public:
  Channel();
  /// Frees the events that nobody took.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] bool valid() const noexcept { return static_cast<bool>(descriptor_); }
  /// False in a forked child.
  [[nodiscard]] bool is_mine() const noexcept { return fork_mark_.is_mine(); }
  /// Deletes the channel; but one that a thread waits in stays, with its descriptor, for that thread.
  static void destroy(Channel* channel);

  /// Waits unless the descriptor is non-blocking; null with errno, in a child ENODEV. A thread that waits may be
  /// cancelled. The owner counts the event as delivered.
  [[nodiscard]] EventRecord* take();

  // Under events_mutex().
  /// Whether a thread waits for an event here.
  [[nodiscard]] bool waited_in() const noexcept { return waiting_ != 0; }
  void push(EventRecord& record);
  /// Takes out the events that match, in order.
  [[nodiscard]] std::deque<EventRecord*> extract(const std::function<bool(const EventRecord&)>& matches);

 private:
  void set_readable(bool readable) noexcept;

  PrivateFd descriptor_;
  const ForkMark fork_mark_;
  bool readable_ = false;
  std::size_t waiting_ = 0;  // threads in take()
  std::deque<EventRecord*> records_;
};

}  // namespace fairlead::cm
