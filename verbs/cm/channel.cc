#include "verbs/cm/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "verbs/cm/id.h"

namespace fairlead::cm {

// Never destroyed: events may be acknowledged while the process ends.
std::mutex& events_mutex() noexcept {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

std::condition_variable& acknowledged() noexcept {
  static std::condition_variable& condition = *new std::condition_variable;
  return condition;
}

Channel::Channel() : rdma_event_channel{}, descriptor_(UniqueFd(::eventfd(0, EFD_CLOEXEC))) { fd = descriptor_.get(); }

Channel::~Channel() {
  for (EventRecord* record : records_) delete record;
}

void Channel::set_readable(bool readable) noexcept {
  if (readable == readable_) return;
  readable_ = readable;
  // Reading does not wait: the counter is 1, and nobody else reads it.
  std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t done =
      readable ? ::write(descriptor_.get(), &one, sizeof(one)) : ::read(descriptor_.get(), &one, sizeof(one));
}

void Channel::destroy(Channel* channel) {
  if (channel != nullptr && channel->is_mine()) {
    const std::lock_guard lock(events_mutex());
    if (channel->waited_in()) return;
  }
  delete channel;
}

EventRecord* Channel::take() {
  if (!is_mine()) {
    errno = ENODEV;
    return nullptr;
  }
  std::unique_lock lock(events_mutex());
  while (records_.empty()) {
    if ((::fcntl(descriptor_.get(), F_GETFL) & O_NONBLOCK) != 0) {
      errno = EAGAIN;
      return nullptr;
    }
    ++waiting_;
    lock.unlock();
    pollfd ready{descriptor_.get(), POLLIN, 0};
    const int polled = ::poll(&ready, 1, -1);
    const int error = errno;
    lock.lock();
    --waiting_;
    if (polled < 0) {
      errno = error;
      return nullptr;
    }
  }
  EventRecord* record = records_.front();
  records_.pop_front();
  set_readable(!records_.empty());
  ++record->owner->delivered;
  return record;
}

void Channel::push(EventRecord& record) {
  records_.push_back(&record);
  set_readable(true);
}

std::deque<EventRecord*> Channel::extract(const std::function<bool(const EventRecord&)>& matches) {
  std::deque<EventRecord*> taken;
  std::deque<EventRecord*> left;
  for (EventRecord* record : records_) (matches(*record) ? taken : left).push_back(record);
  records_ = std::move(left);
  set_readable(!records_.empty());
  return taken;
}

}  // namespace fairlead::cm
