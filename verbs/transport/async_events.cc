#include "verbs/transport/async_events.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <utility>

#include "fairlead/log.h"

namespace fairlead::verbs {
namespace {

bool is_of_qp(ibv_event_type type) noexcept {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR;
}

}  // namespace

void AsyncEvents::put(Box& box, const Event& event, const Box& taker) {
  box.waiting.push_back(event);
  if (&box != &taker) ::eventfd_write(box.left.get(), 1);
}

// Until it is acknowledged, the queue pair that an event is about is not destroyed.
void AsyncEvents::take_all(const Box& taker) {
  if (context_->async_fd < 0) return;  // a device without them
  ibv_async_event event{};
  while (api_.get_async_event(context_, &event) == 0) {
    if (is_of_qp(event.event_type)) {
      const auto at = of_qp_.find(event.element.qp);
      if (at != of_qp_.end()) put(*at->second, {event.event_type, event.element.qp}, taker);
    } else {
      const bool fatal = event.event_type == IBV_EVENT_DEVICE_FATAL;
      log(fatal ? LogLevel::kError : LogLevel::kInfo,
          fmt::format("{}: asynchronous event {}", name_, static_cast<int>(event.event_type)));
      for (Box* box : boxes_) put(*box, {event.event_type, nullptr}, taker);
    }
    api_.ack_async_event(&event);
  }
}

AsyncEvents::Reader::Reader(AsyncEvents& events)
    : events_(events), box_{.waiting = {}, .left = PrivateFd(UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)))} {
  const std::lock_guard lock(events_.mutex_);
  events_.boxes_.push_back(&box_);
}

AsyncEvents::Reader::~Reader() {
  const std::lock_guard lock(events_.mutex_);
  std::erase(events_.boxes_, &box_);
}

void AsyncEvents::Reader::watch(const ibv_qp* qp) {
  const std::lock_guard lock(events_.mutex_);
  events_.of_qp_[qp] = &box_;
}

void AsyncEvents::Reader::forget(const ibv_qp* qp) noexcept {
  const std::lock_guard lock(events_.mutex_);
  events_.of_qp_.erase(qp);
  std::erase_if(box_.waiting, [qp](const Event& event) { return event.qp == qp; });
}

std::vector<AsyncEvents::Event> AsyncEvents::Reader::take() {
  const std::lock_guard lock(events_.mutex_);
  events_.take_all(box_);
  // Also where nothing waits: what was left may have been forgotten since.
  eventfd_t ignored;
  (void)::eventfd_read(box_.left.get(), &ignored);
  return std::exchange(box_.waiting, {});
}

}  // namespace fairlead::verbs
