#include "datapath/session/control_link.h"

#include <sys/epoll.h>

#include <utility>

namespace fairlead::datapath {

void ControlLink::dial(std::vector<std::string> addresses, std::uint16_t port, Clock::time_point deadline) {
  dialer_.begin(std::move(addresses), port, deadline);
  try_next();
}

void ControlLink::adopt(std::unique_ptr<ControlStream> stream) {
  channel_ = std::make_unique<ControlChannel>(std::move(stream), false);
  watch();
}

void ControlLink::try_next() {
  while (const std::string* address = dialer_.next(host_.now())) {
    Result<std::unique_ptr<ControlStream>> stream = host_.dial(*address, dialer_.port());
    if (stream) {
      channel_ = std::make_unique<ControlChannel>(std::move(*stream), true);
      return watch();
    }
    dialer_.failed(stream.error());
  }
  user_.link_refused(dialer_.failure());
}

void ControlLink::next_after(const Status& why) {
  close();
  dialer_.failed(why);
  try_next();
}

std::unique_ptr<ControlChannel> ControlLink::let_go() {
  if (channel_ != nullptr) host_.unwatch_control(channel_->stream());
  watched_ = 0;
  return std::move(channel_);
}

void ControlLink::watch() {
  if (channel_ == nullptr) return;
  std::uint32_t events = 0;  // always one of them: 0 means that it is not watched yet
  if (channel_->wants_read()) events |= EPOLLIN;
  if (channel_->wants_write()) events |= EPOLLOUT;
  if (events == watched_) return;
  host_.watch_control(channel_->stream(), *this, events, watched_ == 0);
  watched_ = events;
}

void ControlLink::send(const control::Frame& frame) {
  if (channel_ == nullptr) return;
  // A connection that broke is noticed by reading it, after what the peer said last.
  overrun_ |= channel_->send(frame).code() == Code::kResourceExhausted;
  watch();
}

void ControlLink::on_ready(std::uint32_t epoll_events) {
  if (channel_ == nullptr) return;
  const bool dialed = channel_->connecting();
  // Of a connection that ended while nothing is read from it, the end shows in writing.
  const bool ended = (epoll_events & (EPOLLHUP | EPOLLERR)) != 0 && !channel_->wants_read();
  Status sent;
  if (dialed || (epoll_events & EPOLLOUT) != 0 || ended) sent = channel_->flush();
  if (dialed) {
    if (!sent.ok()) return next_after({Code::kUnavailable, std::string(sent.message())});
    if (channel_->connecting()) return;
    user_.link_up();
  }
  watch();
  if (channel_ == nullptr) return;
  Status got;
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 || !sent.ok()) {
    got = channel_->read([this](const control::Frame& frame) {
      hear(host_.now());
      user_.link_heard(frame);
    });
  }
  const Status& why = got.ok() ? sent : got;
  if (why.ok()) return;
  // The peer sees the end once it was told here.
  const std::unique_ptr<ControlChannel> last = let_go();
  user_.link_lost(why);
}

void ControlLink::check_dialing(Clock::time_point now) {
  if (dialing() && dialer_.is_late(now)) next_after({Code::kUnavailable, "no answer in its time"});
}

void ControlLink::hear(Clock::time_point now) noexcept {
  last_heard_ = now;
  first_ping_.reset();
  last_ping_.reset();
  silent_ = false;
}

bool ControlLink::check_silence(Clock::time_point now) {
  if (std::exchange(live_, false)) hear(now);
  const auto limit = host_.config().peer_timeout;
  const auto silence = now - last_heard_;
  if (silence > limit / 3 && (!last_ping_ || now - *last_ping_ > limit / 6)) {
    if (!first_ping_) first_ping_ = now;
    last_ping_ = now;
    send(control::Ping{.nonce = 1});
  }
  const bool silent = silence > limit && now - *first_ping_ >= limit / 3;
  return std::exchange(silent_, silent) && silent;
}

}  // namespace fairlead::datapath
