#include "datapath/session/control_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace fairlead::datapath {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{10}, kLongestPause{500};  // between attempts
constexpr milliseconds kAttempt{1000};                       // for one to be answered by the host
constexpr std::uint64_t kTellBytes = 64 * 1024;              // heard before the peer is told

/// Whether the peer is to say something, if only to a ping that comes later, when it has heard this.
bool awaits_answer(const control::Frame& frame) {
  const auto* ping = std::get_if<control::Ping>(&frame);
  return ping != nullptr ? !ping->reply : !std::holds_alternative<control::Heard>(frame);
}

}  // namespace

void ControlLink::dial(std::vector<std::string> addresses, std::uint16_t port, Clock::time_point deadline) {
  dialer_.begin(std::move(addresses), port, deadline);
  try_next();
}

void ControlLink::adopt(std::unique_ptr<ControlChannel> channel) {
  channel_ = std::move(channel);
  watch();
}

void ControlLink::try_next() {
  while (const std::string* address = dialer_.next(host_.now())) {
    Result<std::unique_ptr<ControlStream>> stream = host_.dial(*address, dialer_.port());
    if (stream) {
      address_ = *address;
      channel_ = std::make_unique<ControlChannel>(std::move(*stream), true);
      return watch();
    }
    dialer_.failed(stream.error());
  }
  if (cut_) return attempt_failed(dialer_.failure());
  user_.link_refused(dialer_.failure());
}

void ControlLink::next_after(const Status& why) {
  release();
  dialer_.failed(why);
  try_next();
}

std::unique_ptr<ControlChannel> ControlLink::release() {
  if (channel_ != nullptr) host_.unwatch_control(channel_->stream());
  watched_ = 0;
  return std::move(channel_);
}

void ControlLink::close() {
  release();
  keeps_ = cut_ = false;
  frames_ = {};
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

// ---- what is said --------------------------------------------------------------------------------------------------

void ControlLink::send(const control::Frame& frame) {
  if (channel_ == nullptr && !cut_) return;
  std::string wire = to_wire(frame);
  if (!cut_) put(wire, awaits_answer(frame));
  if (!keeps_) return;
  frames_.said(std::move(wire));
  overrun_ |= frames_.bytes() > kMaxKept;
}

void ControlLink::say(const control::Frame& frame) {
  if (channel_ != nullptr) put(to_wire(frame), awaits_answer(frame));
}

void ControlLink::put(std::string_view wire, bool awaits_answer) {
  // A connection that broke is noticed by reading it, after what the peer said last.
  overrun_ |= channel_->send(wire).code() == Code::kResourceExhausted;
  if (awaits_answer && !spoken_to_) spoken_to_ = host_.now();
  watch();
}

// ---- what is heard -------------------------------------------------------------------------------------------------

void ControlLink::on_ready(std::uint32_t epoll_events) {
  if (channel_ == nullptr) return;
  const bool dialed = channel_->connecting();
  // Of a connection that ended while nothing is read from it, the end shows in writing.
  const bool ended = (epoll_events & (EPOLLHUP | EPOLLERR)) != 0 && !channel_->wants_read();
  Status sent;
  if (dialed || (epoll_events & EPOLLOUT) != 0 || ended) sent = channel_->flush();
  if (dialed) {
    if (!sent.ok()) return next_after(sent);
    if (channel_->connecting()) return;
    attempt_until_ = host_.now() + host_.config().peer_timeout / 6;
    user_.link_up();
  }
  watch();
  if (channel_ == nullptr) return;
  Status got;
  if ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 || !sent.ok()) {
    const std::uint64_t before = channel_->received();
    bool whole = false;
    got = channel_->read([&](const control::Frame& frame) {
      whole = true;
      count(frame);
      user_.link_heard(frame);
    });
    if (channel_ == nullptr) return;
    if (!whole && channel_->received() != before) heard_something();
    tell_heard();
  }
  const Status& why = got.ok() ? sent : got;
  if (why.ok()) return;
  if (cut_) return attempt_failed(why);
  // The peer sees the end once it was told here.
  const std::unique_ptr<ControlChannel> last = release();
  user_.link_lost(why);
}

/// Whole frames are not waited for: a large one may take its time.
void ControlLink::heard_something() noexcept {
  if (cut_) return;  // whoever that is
  hear(host_.now());
  answered();
}

void ControlLink::count(const control::Frame& frame) noexcept {
  heard_something();
  if (keeps_ && !cut_ && !std::holds_alternative<control::Heard>(frame)) frames_.hear();
}

/// Not for each, and not before the frames of a turn were heard. In the middle of a large one it is a sign of life.
void ControlLink::tell_heard() {
  if (!keeps_ || cut_) return;
  if (frames_.untold() < KeptFrames::kTellEvery && channel_->received() - told_at_byte_ < kTellBytes) return;
  frames_.told();
  told_at_byte_ = channel_->received();
  say(control::Heard{.count = frames_.heard()});
}

// ---- another connection --------------------------------------------------------------------------------------------

void ControlLink::rejoin() {
  release();
  cut_ = true;
  pause_ = kFirstPause;
  attempt_at_ = host_.now();
}

/// Active; passive, there is nobody to dial.
void ControlLink::attempt() {
  if (address_.empty()) return;
  attempt_until_ = host_.now() + std::min(kAttempt, host_.config().peer_timeout / 6);
  dialer_.begin({address_}, dialer_.port(), attempt_until_);
  try_next();
}

void ControlLink::attempt_failed(const Status& why) {
  release();
  attempt_at_ = host_.now() + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  if (why.code() == Code::kNotFound) user_.link_refused(why);
}

void ControlLink::take_over(std::unique_ptr<ControlChannel> channel) {
  release();
  cut_ = true;
  channel_ = std::move(channel);
  watch();
}

bool ControlLink::rejoined(std::uint64_t heard_there) {
  cut_ = false;
  if (!frames_.heard_there(heard_there)) return false;
  told_at_byte_ = channel_->received();
  frames_.told();  // by what was said to rejoin
  hear(host_.now());
  answered();
  std::string rest;  // in one piece: there may be very many
  for (const std::string& wire : frames_.kept()) rest += wire;
  if (!rest.empty()) put(rest, true);
  return true;
}

// ---- time ----------------------------------------------------------------------------------------------------------

void ControlLink::check_dialing(Clock::time_point now) {
  if (dialing() && dialer_.is_late(now)) next_after({Code::kUnavailable, "no answer in its time"});
  if (!cut_) return;
  if (channel_ != nullptr && now >= attempt_until_ && !address_.empty()) {
    attempt_failed({Code::kUnavailable, "no answer in its time"});
  }
  if (channel_ == nullptr && now >= attempt_at_) attempt();
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
    if (!cut_) send(control::Ping{.nonce = 1});
  }
  const bool silent = silence > limit && now - *first_ping_ >= limit / 3;
  return std::exchange(silent_, silent) && silent;
}

void ControlLink::check_answers(Clock::time_point now, Clock::duration patience) {
  if (!keeps_ || cut_ || channel_ == nullptr || !spoken_to_) return;
  if (!asked_) {
    if (now - *spoken_to_ <= patience) return;
    asked_ = now;
    return send(control::Ping{.nonce = 1});
  }
  const bool unanswered = now - *asked_ > patience;
  if (!(std::exchange(unanswered_, unanswered) && unanswered)) return;
  const std::unique_ptr<ControlChannel> last = release();
  user_.link_lost({Code::kPeerDied, fmt::format("nothing answered on the control connection for {} ms",
                                                std::chrono::duration_cast<milliseconds>(now - *spoken_to_).count())});
}

}  // namespace fairlead::datapath
