#include "tcp_fallback/path.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/system/no_watch.h"
#include "tcp_fallback/domain.h"

namespace fairlead::tcp_fallback {
namespace {

constexpr Nanos kHandshakeTime = 10 * kSecond;
constexpr Nanos kAtOnce = 20 * kMicrosecond;  // from a message to its answer: longer is not worth waiting for

std::string sentence(int error) { return std::generic_category().message(error); }

}  // namespace

TcpPath::TcpPath(Shared& shared, const datapath::PathConfig& config)
    : Path(*config.events),
      shared_(shared),
      role_(config.role),
      peer_host_(config.peer_host),
      peer_timeout_(config.peer_timeout),
      urgent_(config.urgent),
      polled_(config.polled),
      token_(random_token()),
      peer_name_(config.peer_host),
      requests_(shared.config.send_depth),
      sender_(requests_, shared.grants, number_of(config.domain)),
      receiver_(requests_, sender_, shared.grants, number_of(config.domain)) {
  shared_.paths.push_back(this);
  shared_.urgent += urgent_ ? 1 : 0;
}

TcpPath::~TcpPath() {
  close();
  shared_.traffic.ended.add(requests_.end() - requests_.first());  // what nobody will hear of
  shared_.urgent -= urgent_ ? 1 : 0;
  if (shared_.polling) {
    std::replace(shared_.paths.begin(), shared_.paths.end(), this, static_cast<TcpPath*>(nullptr));
  } else {
    std::erase(shared_.paths, this);
  }
}

std::string TcpPath::local_description() const { return encode(Description{shared_.port, token_}); }

Status TcpPath::connect(std::string_view peer) {
  if (state_ != State::kIdle) return {Code::kInvalidArgument, "this tcp path was connected or closed before"};
  const auto description = decode_description(peer);
  if (!description) return description.error();
  peer_token_ = description->token;
  if (role_ == datapath::PathRole::kPassive) {
    state_ = State::kWaiting;
    return {};
  }
  const auto address = parse_address(peer_host_, description->port);
  if (!address) return address.error();
  auto fd = dial(*address, shared_.config, peer_timeout_);
  if (!fd) return fd.error();
  peer_name_ = address->to_string();
  stream_.reset(PrivateFd(std::move(*fd)));
  if (!ask_for(EPOLLOUT)) {
    Status why = cannot_watch();
    stream_.close();
    return why;
  }
  deadline_ = shared_.clock.now() + kHandshakeTime;
  state_ = State::kDialing;
  return {};
}

std::size_t TcpPath::post(std::span<const datapath::WorkRequest> requests) noexcept {
  if (state_ != State::kReady || send_error_ != 0) return 0;
  note_post();
  const bool alone = requests_.empty();
  std::size_t taken = 0;
  while (taken < requests.size() && requests_.push(requests[taken])) ++taken;
  shared_.traffic.requests.add(taken);
  // What is posted while others are in flight goes with the next poll(), so that small requests share a system call.
  if (alone && !shared_.polling) flush();
  return taken;
}

void TcpPath::close() noexcept {
  if (state_ == State::kClosed) return;
  flush_held();
  leave(State::kClosed);
  announce_down_.reset();
  announce_ready_ = false;
  disconnect();
}

bool TcpPath::drained() const noexcept {
  const bool ended = state_ == State::kClosed || (state_ == State::kDown && !announce_down_);
  return ended && requests_.empty();
}

std::string TcpPath::describe() const {
  if (local_name_.empty()) return fmt::format("tcp -> {}, not connected", peer_name_);
  return fmt::format("tcp {} -> {}, depth {}, congestion control {}", local_name_, peer_name_, requests_.depth(),
                     congestion_control_);
}

bool TcpPath::adopt(const Greeting& greeting, PrivateFd& connection) noexcept {
  if (state_ != State::kWaiting || !equal(greeting.token, token_)) return false;
  stream_.reset(std::move(connection));
  const SocketAddress peer = peer_address(stream_.fd());
  set_data_options(stream_.fd(), peer, shared_.config, peer_timeout_);
  peer_name_ = peer.to_string();
  become_ready(greeting);
  if (state_ == State::kReady && !send_greeting()) {
    fail(Code::kUnavailable, fmt::format("{} went away in the handshake", peer_name_));
  }
  return true;
}

bool TcpPath::advance(bool look) noexcept {
  switch (state_) {
    case State::kIdle:
    case State::kWaiting:
      return false;
    case State::kDialing:
    case State::kGreeting:
      return advance_handshake();
    case State::kReady:
      if (!look && watched_ == 0 && !watch(EPOLLIN)) return report_end();
      return (look || readable_ || announce_ready_ || send_error_ != 0) && advance_ready();
    case State::kDown:
    case State::kClosed:
      return report_end();
  }
  return false;
}

bool TcpPath::advance_handshake() noexcept {
  if (state_ == State::kDialing) advance_dialing();
  if (state_ == State::kGreeting) advance_greeting();
  if (state_ == State::kReady) return advance_ready();
  if (state_ == State::kDown) return report_end();
  if (shared_.clock.now() < deadline_) return false;
  fail(Code::kDeadlineExceeded, fmt::format("{} did not answer within {} s", peer_name_, kHandshakeTime / kSecond));
  return report_end();
}

void TcpPath::advance_dialing() noexcept {
  pollfd writable{stream_.fd(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(stream_.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(Code::kUnavailable, fmt::format("cannot connect to {}: {}", peer_name_, sentence(error)));
  if (!send_greeting()) return fail(Code::kUnavailable, fmt::format("{} went away in the handshake", peer_name_));
  state_ = State::kGreeting;
  watch(EPOLLIN);
}

void TcpPath::advance_greeting() noexcept {
  while (greeting_received_ < greeting_.size()) {
    iovec piece{greeting_.data() + greeting_received_, greeting_.size() - greeting_received_};
    const IoResult got = stream_.receive({&piece, 1});
    if (got.would_block()) return;
    if (got.bytes == 0) {
      return fail(Code::kUnavailable, fmt::format("{} ended the connection in the handshake: {}", peer_name_,
                                                  got.error != 0 ? sentence(got.error) : "it knows no such path"));
    }
    greeting_received_ += got.bytes;
  }
  Greeting greeting;
  std::string_view reason = decode(std::span<const std::byte, kGreetingBytes>(greeting_), greeting);
  if (reason.empty() && !equal(greeting.token, token_)) reason = "a wrong token";
  if (!reason.empty()) return fail(Code::kDataLoss, fmt::format("bad greeting from {}: {}", peer_name_, reason));
  become_ready(greeting);
}

bool TcpPath::send_greeting() noexcept {
  GreetingBytes bytes;
  encode(Greeting{peer_token_, shared_.config.send_depth, true}, bytes);
  iovec piece{bytes.data(), bytes.size()};
  return stream_.send({&piece, 1}).bytes == bytes.size();  // a new connection's buffer always has room for it
}

void TcpPath::become_ready(const Greeting& greeting) noexcept {
  requests_.limit(greeting.depth);
  receiver_.set_peer_depth(greeting.keeps_lower ? requests_.depth() : greeting.depth);
  local_name_ = local_address(stream_.fd()).to_string();
  congestion_control_ = congestion_control(stream_.fd());
  state_ = State::kReady;
  shared_.traffic.paths.add();
  announce_ready_ = true;
  watch(EPOLLIN);
}

bool TcpPath::advance_ready() noexcept {
  const bool announced = std::exchange(announce_ready_, false);
  if (announced) {
    events().on_ready(*this);
    if (state_ != State::kReady) return true;  // closed from inside
  }
  readable_ = false;
  const Receiver::Outcome outcome = receiver_.advance(stream_, *this, shared_.turn);
  shared_.traffic.bytes_received.add(outcome.bytes);
  if (outcome.bytes != 0) note_urgent();
  if (heard_) heard_at_ = shared_.clock.now();
  if (state_ != State::kReady) return true;
  switch (outcome.end) {
    case Receiver::End::kNone:
      if (send_error_ == 0 || outcome.bytes > 0) return announced || outcome.bytes > 0;
      fail(Code::kUnavailable, fmt::format("connection to {} lost: {}", peer_name_, sentence(send_error_)));
      break;
    case Receiver::End::kClosed:
      fail(Code::kUnavailable, fmt::format("{} closed the connection", peer_name_));
      break;
    case Receiver::End::kError:
      fail(Code::kUnavailable, fmt::format("connection to {} lost: {}", peer_name_, sentence(outcome.error)));
      break;
    case Receiver::End::kMalformed:
      fail(Code::kDataLoss, fmt::format("{} sent {}", peer_name_, outcome.reason));
      break;
  }
  report_end();
  return true;
}

bool TcpPath::report_end() noexcept {
  bool happened = false;
  if (const auto why = std::exchange(announce_down_, std::nullopt)) {
    events().on_down(*this, why->code(), why->message());
    happened = true;
  }
  while (!requests_.empty()) {
    const Request& request = requests_.at(requests_.first());
    const Code code = request.code != Code::kOk ? request.code : Code::kAborted;
    const std::uint64_t id = request.id;
    requests_.pop();
    on_completion({id, code});
    happened = true;
  }
  return happened;
}

bool TcpPath::end_turn() noexcept {
  const bool heard = std::exchange(heard_, false), held = std::exchange(held_, false);
  if (sender_.owes_an_ack_alone()) {
    held_ = heard && hold_.may_wait() && !held;
    if (held_) return false;
    if (held) hold_.waited_in_vain();  // a turn has passed, and there was no answer
  } else if (held) {
    hold_.went_along();
  }
  return flush();
}

void TcpPath::flush_held() noexcept {
  if (std::exchange(held_, false)) flush();
}

/// Whether this answers what came last, so that an acknowledgement could have gone with it.
void TcpPath::note_post() noexcept {
  if (!heard_at_ || !polled_) return;
  if (!hold_.may_wait() && shared_.clock.now() - *heard_at_ < kAtOnce) hold_.answered();
  heard_at_.reset();
}

bool TcpPath::flush() noexcept {
  if (state_ != State::kReady || send_error_ != 0 || sender_.idle()) return false;
  if (std::exchange(held_, false)) hold_.went_along();
  const IoResult sent = sender_.flush(stream_, shared_.turn);
  shared_.traffic.bytes_sent.add(sent.bytes);
  if (sent.bytes != 0) note_urgent();
  // What the peer sent before it went is still to be read, so the path ends when there is nothing left to read.
  if (sent.error != 0 && !sent.would_block()) send_error_ = sent.error;
  return sent.bytes > 0;
}

bool TcpPath::arm() noexcept {
  flush_held();
  if (state_ == State::kReady) {
    const std::uint32_t events = sender_.idle() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    return watch(events) && !announce_ready_ && send_error_ == 0;
  }
  return !announce_down_ && (requests_.empty() || !(state_ == State::kDown || state_ == State::kClosed));
}

void TcpPath::disarm() noexcept {
  if (state_ == State::kReady) unwatch();
}

void TcpPath::note_urgent() noexcept {
  if (!urgent_) return;
  shared_.urgent_at = shared_.clock.now();
  shared_.choose_turn(shared_.urgent_at);
}

std::optional<Nanos> TcpPath::deadline() const noexcept {
  if (state_ == State::kDialing || state_ == State::kGreeting) return deadline_;
  return std::nullopt;
}

void TcpPath::fail(Code code, std::string reason) noexcept {
  leave(State::kDown);
  announce_ready_ = false;
  announce_down_ = Status(code, std::move(reason));
  disconnect();
}

bool TcpPath::ask_for(std::uint32_t events) noexcept {
  if (watched_ == events) return true;
  epoll_event event{};
  event.events = events;
  event.data.ptr = this;
  const int how = watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (::epoll_ctl(shared_.epoll.get(), how, stream_.fd(), &event) != 0 && how == EPOLL_CTL_ADD) return false;
  watched_ = events;
  return true;
}

bool TcpPath::watch(std::uint32_t events) noexcept {
  if (ask_for(events)) return true;
  const Status why = cannot_watch();
  fail(why.code(), why.message());
  return false;
}

Status TcpPath::cannot_watch() const { return no_watch(fmt::format("the socket to {}", peer_name_), errno); }

void TcpPath::unwatch() noexcept {
  if (watched_ != 0) ::epoll_ctl(shared_.epoll.get(), EPOLL_CTL_DEL, stream_.fd(), nullptr);
  watched_ = 0;
}

void TcpPath::leave(State next) noexcept {
  if (state_ == State::kReady) shared_.traffic.paths_ended.add();
  state_ = next;
}

void TcpPath::count_retransmissions() noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (stream_.fd() < 0 || ::getsockopt(stream_.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  shared_.traffic.retransmissions.add(info.tcpi_total_retrans - retransmitted_);
  retransmitted_ = info.tcpi_total_retrans;
}

void TcpPath::disconnect() noexcept {
  receiver_.stop();
  if (stream_.fd() < 0) return;
  count_retransmissions();
  unwatch();
  stream_.close();
}

void TcpPath::on_message(std::span<const std::byte> bytes) noexcept {
  heard_ = true;
  events().on_message(*this, bytes);
}

void TcpPath::on_completion(const datapath::Ended& ended) noexcept {
  shared_.traffic.ended.add(ended.count);
  events().on_completion(*this, ended);
}

}  // namespace fairlead::tcp_fallback
