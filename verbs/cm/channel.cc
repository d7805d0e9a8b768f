#include "verbs/cm/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/system/uncancelled.h"
#include "verbs/cm/id.h"

namespace fairlead::cm {
namespace {

/// Counts a thread that waits without the lock, also where it is cancelled meanwhile.
class Waiting {
 public:
  Waiting(std::unique_lock<std::mutex>& lock, std::size_t& count) noexcept : lock_(lock), count_(count) {
    ++count_;
    lock_.unlock();
  }
  ~Waiting() {
    lock_.lock();
    --count_;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
  std::size_t& count_;
};

// Without the lock; 0, or an errno. A cancellation point, so not noexcept.
int wait_until_readable(int descriptor, std::unique_lock<std::mutex>& lock, std::size_t& waiting) {
  const Waiting counted(lock, waiting);
  pollfd ready{descriptor, POLLIN, 0};
  return ::poll(&ready, 1, -1) < 0 ? errno : 0;
}

}  // namespace

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
  [[maybe_unused]] const ssize_t done = readable ? uncancelled::write(descriptor_.get(), &one, sizeof(one))
                                                 : uncancelled::read(descriptor_.get(), &one, sizeof(one));
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
    if (const int error = wait_until_readable(descriptor_.get(), lock, waiting_); error != 0) {
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
