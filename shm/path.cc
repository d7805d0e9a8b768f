#include "shm/path.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system/no_watch.h"
#include "base/system/unix_packets.h"
#include "shm/domain.h"
#include "shm/meeting/socket.h"

namespace fairlead::shm {
namespace {

constexpr Nanos kMeetingTime = 10 * kSecond;
constexpr Nanos kDialAgain = kMillisecond;
// Copied before others get their turn; while one that must not wait is busy, less.
constexpr std::size_t kLongTurn = 512 * 1024, kShortTurn = 32 * 1024;
constexpr Nanos kUrgentTime = 2 * kMillisecond;

}  // namespace

ShmPath::ShmPath(Context& context, const datapath::PathConfig& config)
    : Path(*config.events),
      context_(context),
      active_(config.role == datapath::PathRole::kActive),
      urgent_(config.urgent),
      polled_(config.polled),
      memory_(context.traffic.copies),
      given_(context.arenas),
      requester_(memory_, given_),
      responder_(memory_, given_, context.grants, context.reads, number_of(config.domain)) {
  context_.paths.push_back(this);
  context_.urgent += urgent_ ? 1 : 0;
}

ShmPath::~ShmPath() {
  close();
  context_.traffic.ended.add(requester_.outstanding());  // what nobody will hear of
  context_.urgent -= urgent_ ? 1 : 0;
  if (context_.polling) {
    std::replace(context_.paths.begin(), context_.paths.end(), this, static_cast<ShmPath*>(nullptr));
  } else {
    std::erase(context_.paths, this);
  }
}

std::string ShmPath::local_description() const {
  return encode(Description{.place = context_.place.number, .socket = context_.socket, .token = token_});
}

std::string ShmPath::peer_name() const { return fmt::format("process {}", memory_.process()); }

// ---- meeting -------------------------------------------------------------------------------------------------------

Status ShmPath::connect(std::string_view peer) {
  if (state_ != State::kIdle) return {Code::kInvalidArgument, "this shm path was connected or closed before"};
  const auto description = decode_description(peer);
  if (!description) return description.error();
  if (description->place != context_.place.number) {
    return {Code::kUnavailable,
            fmt::format("the peer does not meet others where we do ({}): it is of another host, user or network "
                        "namespace; shm.directory at both ends names one place for several",
                        context_.place.directory)};
  }
  peer_token_ = description->token;
  if (!active_) {
    state_ = State::kWaiting;
    return {};
  }
  peer_socket_ = socket_path(context_.place.directory, description->socket);
  deadline_ = context_.clock.now() + kMeetingTime;
  state_ = State::kDialing;
  return {};
}

void ShmPath::try_to_dial() noexcept {
  auto socket = dial(peer_socket_);
  if (!socket) {
    const Status& error = socket.error();
    if (error.code() == Code::kUnavailable) return;  // too many wait there: perhaps fewer in a moment
    const bool limit = error.code() == Code::kResourceExhausted;
    return fail(limit ? Code::kResourceExhausted : Code::kUnavailable, error.message());
  }
  auto process = peer_process(socket->get());
  if (!process) return fail(process.error().code(), process.error().message());
  socket_ = std::move(*socket);
  memory_.meet(std::move(*process), socket_.get());
  greet_first();
}

void ShmPath::greet_first() noexcept {
  UniqueFd descriptor;
  auto made = Segment::make(descriptor);
  if (!made) return fail(made.error().code(), made.error().message());
  segment_ = std::move(*made);
  if (!send_greeting(descriptor.get())) return fail_to_greet(errno);
  if (watch()) state_ = State::kGreeting;
}

void ShmPath::fail_to_greet(int error) noexcept {
  if (error != ETOOMANYREFS && error != ENOBUFS && error != ENOMEM) {
    return fail(Code::kUnavailable, peer_name() + " went away in the meeting");
  }
  fail(Code::kResourceExhausted,
       fmt::format(
           "cannot greet {}: {}{}", peer_name(), std::strerror(error),
           error == ETOOMANYREFS ? ", descriptors of this user that are sent and not read; raise `ulimit -n`" : ""));
}

bool ShmPath::send_greeting(int descriptor) noexcept {
  GreetingBytes bytes;
  encode(Greeting{.token = peer_token_, .own = own_, .own_address = reinterpret_cast<std::uint64_t>(&own_)}, bytes);
  return send_packet(socket_.get(), bytes, descriptor);  // a new socket always has room for it
}

void ShmPath::take_greeting() noexcept {
  std::array<std::byte, kGreetingBytes + 1> bytes;
  UniqueFd descriptor;
  const auto got = receive_packet(socket_.get(), bytes, descriptor);
  if (!got && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    // It has ended, and the socket has not if another process holds that: nobody will answer.
    if (std::exchange(readable_, false) && !memory_.alive()) fail(Code::kUnavailable, peer_name() + " has ended");
    return;
  }
  if (!got || *got == 0) {
    return fail(
        Code::kUnavailable,
        fmt::format("{} ended the meeting: it knows no such path, or had no descriptor left, which its log says",
                    peer_name()));
  }
  Greeting greeting;
  std::string_view reason = decode(std::span(bytes).first(*got), greeting);
  if (reason.empty() && !equal(greeting.token, token_)) reason = "a wrong token";
  if (!reason.empty()) return fail(Code::kDataLoss, fmt::format("{} answered with {}", peer_name(), reason));
  become_ready(greeting);
}

bool ShmPath::adopt(Guest& guest) noexcept {
  if (state_ != State::kWaiting || !equal(guest.greeting.token, token_)) return false;
  socket_ = std::move(guest.socket);
  memory_.meet(std::move(guest.process), socket_.get());
  auto adopted = Segment::adopt(guest.segment);
  if (!adopted) {
    fail(adopted.error().code(), fmt::format("{}: {}", peer_name(), adopted.error().message()));
    return true;
  }
  segment_ = std::move(*adopted);
  if (!watch()) return true;
  become_ready(guest.greeting);
  if (!send_greeting(-1)) fail_to_greet(errno);
  return true;
}

void ShmPath::become_ready(const Greeting& greeting) noexcept {
  const std::size_t mine = active_ ? 0 : 1, other = 1 - mine;
  const bool pulls = context_.config.pull && memory_.can_read(greeting);
  const bool maps = context_.config.arenas;
  ours().state.pulls.store(pulls ? 1 : 0, std::memory_order_relaxed);
  ours().state.maps.store(maps ? 1 : 0, std::memory_order_relaxed);
  memory_.start(&theirs(), &ours(), pulls, maps);
  given_.start(&theirs(), &ours(), socket_.get(), maps);
  requester_.start(&segment_->requests[mine], &segment_->responses[other], &theirs(), &ours(), pulls || maps);
  responder_.start(&segment_->requests[other], &segment_->responses[mine], &theirs(), &ours(), pulls || maps);
  state_ = State::kReady;
  context_.traffic.paths.add();
  announce_ready_ = true;
}

bool ShmPath::advance_handshake() noexcept {
  if (state_ == State::kDialing) try_to_dial();
  if (state_ == State::kGreeting) take_greeting();
  if (state_ == State::kReady) return advance_ready();
  if (state_ == State::kDown) return report_end();
  if (context_.clock.now() < deadline_) return false;
  const std::string_view what = state_ == State::kDialing ? "there was no room to wait" : "nobody answered";
  fail(Code::kDeadlineExceeded, fmt::format("{} at {} within {} s", what, peer_socket_, kMeetingTime / kSecond));
  return report_end();
}

std::optional<Nanos> ShmPath::deadline() const noexcept {
  if (state_ == State::kDialing) return context_.clock.now() + kDialAgain;
  if (state_ == State::kGreeting) return deadline_;
  return std::nullopt;
}

// ---- life ----------------------------------------------------------------------------------------------------------

std::size_t ShmPath::post(std::span<const datapath::WorkRequest> requests) noexcept {
  if (state_ != State::kReady) return 0;
  requester_.tell(responder_.ended());
  const std::size_t taken = requester_.post(requests);
  responder_.note_said(requester_.said());
  context_.traffic.requests.add(taken);
  wake();
  return taken;
}

bool ShmPath::advance() noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kWaiting:
      return false;
    case State::kDialing:
    case State::kGreeting:
      return advance_handshake();
    case State::kReady:
      return advance_ready();
    case State::kDown:
    case State::kClosed:
      return report_end();
  }
  return false;
}

bool ShmPath::advance_ready() noexcept {
  const bool announced = std::exchange(announce_ready_, false);
  if (announced) {
    events().on_ready(*this);
    if (state_ != State::kReady) return true;  // closed from inside
  }
  const bool heard = std::exchange(readable_, false);  // perhaps what was to wake another of ours
  if (heard) memory_.listen();
  (void)given_.settle();  // whatever goes over this path: a peer that cannot be told now is told at the next poll
  if (owes_wake_) wake();
  const std::size_t most = turn();
  const Advance in = responder_.advance(*this, most);
  if (state_ != State::kReady) return true;
  if (in.heard) requester_.hear(in.ended);
  requester_.tell(responder_.ended());
  // What was delivered goes on at once: what it ended of ours waits for the next poll, though not for another.
  put_off_ = in.messages && polled_ && !put_off_;
  const Advance back = put_off_ ? Advance{} : requester_.advance(*this, most);
  if (state_ != State::kReady) return true;
  responder_.note_said(requester_.said());
  context_.traffic.bytes_received.add(in.bytes + back.bytes);
  // What was delivered goes on at once: who looks whether the peer sleeps waits for all that was written to its lines.
  owes_wake_ |= in.happened && polled_;
  if (!owes_wake_) wake();
  const bool happened = in.happened || back.happened;
  context_.urgent_moved |= urgent_ && happened;
  std::string_view reason = in.reason.empty() ? back.reason : in.reason;
  if (reason.empty()) reason = memory_.reason();
  if (!reason.empty()) {
    fail(Code::kDataLoss, fmt::format("{} sent {}", peer_name(), reason));
  } else if (in.gone || back.gone || (memory_.hung_up() && (!happened || --looks_left_ == 0))) {
    fail(Code::kUnavailable,
         memory_.is_denied()
             ? fmt::format("the kernel lets us read the memory of {} no more: see kernel.yama.ptrace_scope, or set "
                           "shm.pull to false",
                           peer_name())
             : fmt::format("{} closed its end, or has ended", peer_name()));
  } else {
    return announced || heard || happened;
  }
  report_end();
  return true;
}

std::size_t ShmPath::turn() const noexcept {
  if (context_.urgent == 0 || urgent_) return kLongTurn;
  const Nanos now = context_.clock.now();
  if (std::exchange(context_.urgent_moved, false)) context_.urgent_at = now;
  return now - context_.urgent_at < kUrgentTime ? kShortTurn : kLongTurn;
}

void ShmPath::wake() noexcept {
  const std::uint64_t sent = requester_.take_sent();
  if (sent != 0) context_.traffic.bytes_sent.add(sent);
  const bool news = requester_.take_news();
  const bool owed = std::exchange(owes_wake_, false);
  if (!(responder_.take_news() || news || owed) || state_ != State::kReady) return;
  // Reads and writes, so that either it sees what is in the ring before it sleeps, or we see that it does.
  if (theirs().rest.sleeping.exchange(0, std::memory_order_acq_rel) == 0) return;
  const std::byte packet{1};
  if (send_packet(socket_.get(), {&packet, 1}) || !is_not_woken(errno)) return;
  theirs().rest.sleeping.store(1, std::memory_order_release);
  owes_wake_ = true;
}

bool ShmPath::arm() noexcept {
  if (state_ == State::kReady) {
    (void)given_.settle();  // who sleeps may not be polled for long
    ours().rest.sleeping.exchange(1, std::memory_order_acq_rel);
    if (owes_wake_) wake();
    return !announce_ready_ && !memory_.hung_up() && !owes_wake_ && !requester_.has_work() && !responder_.has_work();
  }
  return !announce_down_ && (requester_.idle() || !(state_ == State::kDown || state_ == State::kClosed));
}

void ShmPath::disarm() noexcept {
  if (state_ == State::kReady) ours().rest.sleeping.store(0, std::memory_order_relaxed);
}

void ShmPath::settle() noexcept {
  if (owes_wake_ && state_ == State::kReady && theirs().rest.sleeping.load(std::memory_order_relaxed) != 0) wake();
}

// ---- end -----------------------------------------------------------------------------------------------------------

void ShmPath::close() noexcept {
  if (state_ == State::kClosed) return;
  leave(State::kClosed);
  announce_down_.reset();
  announce_ready_ = false;
  disconnect();
}

bool ShmPath::drained() const noexcept {
  const bool ended = state_ == State::kClosed || (state_ == State::kDown && !announce_down_);
  return ended && requester_.idle();
}

std::string ShmPath::describe() const {
  if (!segment_) return fmt::format("shm in {}, not met", context_.place.directory);
  const bool we = ours().state.pulls.load(std::memory_order_relaxed) == 1;
  const bool they = theirs().state.pulls.load(std::memory_order_relaxed) == 1;
  const bool maps =
      ours().state.maps.load(std::memory_order_relaxed) + theirs().state.maps.load(std::memory_order_relaxed) == 2;
  const std::string_view how = we && they ? "one copy, by who receives (process_vm_readv)"
                               : we       ? "one copy of what we receive, two through rings of what we send"
                               : they     ? "one copy of what we send, two through rings of what we receive"
                                          : "two copies through rings: neither may read the other's memory";
  return fmt::format("{} of this host, met in {}, {}{}", peer_name(), context_.place.directory,
                     maps ? "of pools one copy from memory that both map (memcpy), of other memory " : "", how);
}

bool ShmPath::report_end() noexcept {
  bool happened = false;
  if (const auto why = std::exchange(announce_down_, std::nullopt)) {
    events().on_down(*this, why->code(), why->message());
    happened = true;
  }
  while (!requester_.idle()) {
    const auto [id, code] = requester_.take_first();
    on_completion({id, code});
    happened = true;
  }
  return happened;
}

void ShmPath::fail(Code code, std::string reason) noexcept {
  leave(State::kDown);
  announce_ready_ = false;
  announce_down_ = Status(code, std::move(reason));
  disconnect();
}

void ShmPath::leave(State next) noexcept {
  if (state_ == State::kReady) context_.traffic.paths_ended.add();
  state_ = next;
}

/// Once for each meeting. False: it has failed, as it would not hear of the peer's packets, nor of its end.
bool ShmPath::watch() noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = this;
  const auto add = [&](int descriptor) {
    return descriptor < 0 || ::epoll_ctl(context_.epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
  };
  if (add(socket_.get()) && add(memory_.life())) return true;
  const int error = errno;
  const Status why = no_watch(fmt::format("the socket to {}", peer_name()), error);
  fail(why.code(), why.message());
  return false;
}

/// The peer is told before any memory is let go of.
void ShmPath::disconnect() noexcept {
  if (segment_.is_mine()) responder_.publish();
  requester_.stop();
  responder_.stop();
  given_.stop();
  if (segment_.is_mine()) {
    ours().state.closed.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before what becomes of the memory afterwards
  }
  if (!socket_) return;
  ::epoll_ctl(context_.epoll.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  if (memory_.life() >= 0) ::epoll_ctl(context_.epoll.get(), EPOLL_CTL_DEL, memory_.life(), nullptr);
  memory_.leave();
  empty(socket_.get());
  socket_.reset();
}

void ShmPath::on_message(std::span<const std::byte> bytes) noexcept {
  context_.traffic.bytes_received.add(bytes.size());
  events().on_message(*this, bytes);
}

void ShmPath::on_notification(std::uint32_t value) noexcept { events().on_notification(*this, value); }

void ShmPath::on_completion(const datapath::Ended& ended) noexcept {
  context_.traffic.ended.add(ended.count);
  events().on_completion(*this, ended);
}

}  // namespace fairlead::shm
