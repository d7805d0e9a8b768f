#include "verbs/soft/queues/events.h"

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "base/system/no_cancellation.h"
#include "base/system/uncancelled.h"

namespace fairlead::soft {

template <typename Event>
EventQueue<Event>::EventQueue() : fd_(UniqueFd(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC))) {
  if (!fd_) throw std::system_error(errno, std::generic_category(), "no descriptor for events");
}

template <typename Event>
void EventQueue<Event>::push(const Event& event) {
  if (!is_mine()) return;
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = uncancelled::write(fd_.get(), &one, sizeof(one));
}

template <typename Event>
bool EventQueue<Event>::wait_one() {
  if (!is_mine()) errno = ENODEV;
  std::uint64_t one = 0;
  return is_mine() && ::read(fd_.get(), &one, sizeof(one)) == sizeof(one);
}

template <typename Event>
bool EventQueue<Event>::uncount_one() noexcept {
  const NoCancellation whole;
  std::uint64_t one = 0;
  const iovec to{&one, sizeof(one)};
  return ::preadv2(fd_.get(), &to, 1, -1, RWF_NOWAIT) == sizeof(one);  // the user may want to wait in read
}

template class EventQueue<ibv_cq*>;
template class EventQueue<ibv_async_event>;

AsyncSubject subject_of(ibv_event_type type) noexcept {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return AsyncSubject::kCq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return AsyncSubject::kSrq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return AsyncSubject::kQp;
    default:
      return AsyncSubject::kDevice;
  }
}

CompChannel::CompChannel(ibv_context* owner) : ibv_comp_channel{owner, -1, 0} { fd = queue.fd(); }

}  // namespace fairlead::soft
