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
constexpr std::uint32_t kConnecting = EPOLLIN | EPOLLOUT;    // what is waited for of a connection that is being made
constexpr std::uint64_t kTellBytes = 64 * 1024;              // heard before the peer is told
constexpr std::size_t kAgain = 128 * 1024;                   // said again in one turn

/// Whether the peer is to say something, if only to a ping that comes later, when it has heard this.
bool awaits_answer(const control::Frame& frame) {
  const auto* ping = std::get_if<control::Ping>(&frame);
  return ping != nullptr ? !ping->reply : !std::holds_alternative<control::Heard>(frame);
}

}  // namespace

void ControlLink::dial(std::vector<Place> places, Clock::time_point deadline) {
  places_.set(std::move(places));
  dialer_.begin(places_.all(), host_.now(), deadline);
  try_next();
}

void ControlLink::adopt(std::unique_ptr<ControlChannel> channel) {
  channel_ = std::move(channel);
  watch();
}

void ControlLink::try_next() {
  while (const std::optional<std::size_t> next = dialer_.next(host_.now())) {
    const Place& place = dialer_.place(*next);
    Result<std::unique_ptr<ControlStream>> stream = host_.dial(place.address, place.port);
    Status begun = stream.status();
    if (begun.ok()) begun = host_.watch_control(**stream, *this, kConnecting, true);
    if (begun.ok()) {
      racing_.emplace_back(std::make_unique<ControlChannel>(std::move(*stream), true), *next);
    } else {
      dialer_.failed(*next, begun);
    }
  }
  if (!racing_.empty() || !dialer_.is_over()) return;
  if (cut_) return attempt_failed(dialer_.failure());
  user_.link_refused(dialer_.failure());
}

/// The connection stands or stood, and is of no use.
void ControlLink::next_after(const Status& why) {
  release();
  greets_until_ = Clock::time_point::max();
  if (dialed_) dialer_.failed(*std::exchange(dialed_, std::nullopt), why);
  try_next();
}

void ControlLink::stop_racing() noexcept {
  for (const Racer& racer : racing_) host_.unwatch_control(racer.channel->stream());
  racing_.clear();
}

/// Who answered there is of no use: it has said why not, or `why`.
void ControlLink::give_up_place(const Status& why) {
  const Status said = std::exchange(useless_because_, {});
  next_after(said.ok() ? why : said);
}

/// The first that stands is taken.
void ControlLink::check_race() {
  for (std::size_t i = 0; i < racing_.size();) {
    const Status sent = racing_[i].channel->flush();
    if (sent.ok() && racing_[i].channel->connecting()) {
      ++i;
      continue;
    }
    Racer racer = std::exchange(racing_[i], {});
    racing_.erase(racing_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!sent.ok()) {
      host_.unwatch_control(racer.channel->stream());
      dialer_.failed(racer.which, sent);
      continue;
    }
    stop_racing();
    dialer_.answered(racer.which);
    dialed_ = racer.which;
    useless_because_ = {};
    channel_ = std::move(racer.channel);
    watched_ = kConnecting;
    greets_until_ = cut_ ? host_.now() + host_.config().peer_timeout / 6 : dialer_.greets_until(host_.now());
    return user_.link_up();
  }
  try_next();
}

std::unique_ptr<ControlChannel> ControlLink::release() {
  stop_racing();
  if (watched_ != 0) host_.unwatch_control(channel_->stream());
  watched_ = 0;
  unwatched_because_ = {};
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
  if (channel_->wants_read() && !lets_lie_too_much()) events |= EPOLLIN;
  if (channel_->wants_write() || has_rest()) events |= EPOLLOUT;
  if (events == watched_) return;
  unwatched_because_ = host_.watch_control(channel_->stream(), *this, events, watched_ == 0);
  if (unwatched_because_.ok()) watched_ = events;
}

// ---- what is said --------------------------------------------------------------------------------------------------

void ControlLink::send(const control::Frame& frame) {
  if (channel_ == nullptr && !cut_) return;
  std::string wire = to_wire(frame);
  const bool waits = cut_ || has_rest();
  if (!waits) put(wire, awaits_answer(frame));
  if (!keeps_) return;
  waits ? frames_.wait(std::move(wire)) : frames_.said(std::move(wire));
  overrun_ |= frames_.bytes() > kMaxKept;
}

void ControlLink::say(const control::Frame& frame) {
  if (channel_ != nullptr) put(to_wire(frame), awaits_answer(frame));
}

/// A piece, once the one before is gone: all that is kept would be there twice more, and take this end's turn.
void ControlLink::say_rest() {
  if (channel_ != nullptr && has_rest() && channel_->queued() == 0) put(frames_.say(kAgain), true);
}

void ControlLink::put(std::string_view wire, bool awaits_answer) {
  // A connection that broke is noticed by reading it, after what the peer said last.
  overrun_ |= channel_->send(wire).code() == Code::kResourceExhausted;
  if (awaits_answer && !spoken_to_) spoken_to_ = host_.now();
  watch();
}

// ---- what is heard -------------------------------------------------------------------------------------------------

void ControlLink::on_ready(std::uint32_t epoll_events) {
  if (!racing_.empty()) check_race();
  if (channel_ == nullptr) return;
  // Of a connection that ended while nothing is read from it, the end shows in writing.
  const bool reads = channel_->wants_read() && !lets_lie_too_much();
  const bool ended = (epoll_events & (EPOLLHUP | EPOLLERR)) != 0 && !reads;
  Status sent;
  if ((epoll_events & EPOLLOUT) != 0 || ended) {
    sent = channel_->flush();
    if (sent.ok()) say_rest();
  }
  watch();
  if (channel_ == nullptr) return;
  Status got = unwatched_because_;
  if (got.ok() && may_speak() && ((epoll_events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 || !sent.ok())) {
    const std::uint64_t before = channel_->received();
    bool whole = false;
    got = channel_->read([&](const control::Frame& frame) {
      whole = true;
      count(frame);
      user_.link_heard(frame);
      return may_speak();
    });
    if (channel_ == nullptr) return;
    if (!whole && channel_->received() != before) heard_something();
    tell_heard();
  }
  const Status& why = got.ok() ? sent : got;
  if (why.ok()) return;
  if (cut_) return dialed_ ? give_up_place(why) : attempt_failed(why);
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
  dialed_.reset();
  refused_since_.reset();
  pause_ = kFirstPause;
  attempt_at_ = host_.now();
}

/// Active; passive, there is nobody to dial.
void ControlLink::attempt() {
  std::vector<Place> places = places_.to_look_at();
  if (places.empty()) return;
  const Clock::time_point now = host_.now();
  attempt_until_ = now + std::min(kAttempt, host_.config().peer_timeout / 6);
  dialer_.begin(std::move(places), now, attempt_until_);
  try_next();
}

/// Who moves is at one place no more before it is at the next: only for a while do several count that refuse.
void ControlLink::attempt_failed(const Status& why) {
  release();
  dialed_.reset();
  greets_until_ = Clock::time_point::max();
  const Clock::time_point now = host_.now();
  attempt_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
  if (why.code() != Code::kNotFound) return refused_since_.reset();
  if (!refused_since_) refused_since_ = now;
  if (!places_.several() || now - *refused_since_ >= host_.config().peer_timeout / 6) user_.link_refused(why);
}

void ControlLink::take_over(std::unique_ptr<ControlChannel> channel) {
  release();
  cut_ = true;
  channel_ = std::move(channel);
  watch();
}

bool ControlLink::rejoined(std::uint64_t heard_there) {
  cut_ = false;
  greeted(keeps_);
  if (!frames_.heard_there(heard_there)) return false;
  told_at_byte_ = channel_->received();
  frames_.told();  // by what was said to rejoin
  hear(host_.now());
  answered();
  frames_.say_again();
  say_rest();
  return true;
}

// ---- time ----------------------------------------------------------------------------------------------------------

void ControlLink::check_dialing(Clock::time_point now) {
  static const Status kLate(Code::kUnavailable, "no answer in its time");
  if (dialing()) try_next();
  const bool has_next = cut_ || (dialed_ && dialer_.has_other(*dialed_));
  if (dialed_ && has_next && now >= greets_until_) return give_up_place(kLate);
  if (!cut_ || places_.all().empty()) return;
  if (dialing() && now >= attempt_until_) return attempt_failed(kLate);
  if (!exists() && now >= attempt_at_) attempt();
}

bool ControlLink::is_useless(Status why) {
  if (!dialed_ || !(cut_ || dialer_.has_other(*dialed_))) return false;
  if (why.code() == Code::kNotFound) places_.taken(dialer_.place(*dialed_));
  if (useless_because_.ok()) useless_because_ = std::move(why);  // its first word counts, and not its goodbye
  greets_until_ = {};
  return true;
}

void ControlLink::greeted(bool keeps) noexcept {
  keeps_ = keeps;
  greets_until_ = Clock::time_point::max();
  if (dialed_) places_.found(dialer_.place(*dialed_));
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
