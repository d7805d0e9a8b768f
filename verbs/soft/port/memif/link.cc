#include "verbs/soft/port/memif/link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/system/no_cancellation.h"
#include "base/system/no_watch.h"
#include "base/system/own_user.h"
#include "base/system/uncancelled.h"
#include "base/system/unix_packets.h"
#include "fairlead/log.h"
#include "verbs/soft/port/socket_file.h"
#include "verbs/soft/port/ungreeted.h"

namespace fairlead::soft::memif {
namespace {

constexpr int kBacklog = 16;
constexpr Nanos kDialEvery = 100 * kMillisecond;
constexpr Nanos kLongestHandshake = 1 * kSecond;
constexpr Nanos kLongestUngreeted = 60 * kSecond;
constexpr Nanos kSteady = 1 * kSecond;  // a link that was up so long is news when it ends, whatever was said before
constexpr Nanos kWithoutDescriptors = 100 * kMillisecond;
constexpr Nanos kLookAgain = 2 * kMillisecond;  // whoever sleeps on the link asks what has become of it
constexpr std::size_t kMessagesAtOnce = 16;

struct Address {
  sockaddr_un bytes{};
  socklen_t size = 0;
};

Address address_of(const std::string& socket) {
  Address made;
  made.bytes.sun_family = AF_UNIX;
  const bool file = is_file(socket);
  const std::string name = file ? socket : '\0' + socket.substr(socket.starts_with('@') ? 1 : 0);
  name.copy(made.bytes.sun_path, sizeof made.bytes.sun_path);
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (file ? 1 : 0));
  return made;
}

PrivateFd new_socket() {
  return PrivateFd(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

Status no_descriptors() {
  return {Code::kResourceExhausted,
          fmt::format("packet_io memif: no descriptors: {}; raise `ulimit -n`", std::strerror(errno))};
}

Status not_watched() { return no_watch("the socket of packet_io memif", errno); }

// Empty, or why its other end is none for us.
std::string refuse_user(int socket) {
  const ucred who = peer_of(socket);
  if (who.uid == ~uid_t{0}) return "the system does not say whose it is";
  if (is_own_user(who.uid)) return {};
  return fmt::format("it is of uid {}, and only processes of uid {} are let in", who.uid, ::geteuid());
}

}  // namespace

bool is_file(const std::string& socket) noexcept {
  return !socket.starts_with('@') && socket.find('/') != std::string::npos;
}

Link::Link(const LinkSettings& settings)
    : settings_(settings),
      name_(fmt::format("memif,socket={}", settings.socket)),
      events_(UniqueFd(::epoll_create1(EPOLL_CLOEXEC))),
      alarm_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

Result<std::unique_ptr<Link>> Link::open(const LinkSettings& settings) {
  const std::size_t most = sizeof(sockaddr_un::sun_path) - 1;
  if (settings.socket.empty() || settings.socket.size() > most) {
    return {Code::kInvalidArgument, fmt::format("packet_io memif: socket= takes a name of 1 to {} bytes, '{}' has {}",
                                                most, settings.socket, settings.socket.size())};
  }
  const bool listens = settings.role == Role::kMaster;
  if (is_file(settings.socket)) {
    const auto use = listens ? SocketUse::kListen : SocketUse::kConnect;
    if (const std::string why = refuse_socket_file(settings.socket, use); !why.empty()) {
      return {Code::kUnavailable, "packet_io memif: " + why};
    }
  }
  std::unique_ptr<Link> link(new Link(settings));
  if (!link->events_ || !link->alarm_) return no_descriptors();
  if (!link->watch(link->alarm_.get(), EPOLLIN | EPOLLET)) return not_watched();
  if (listens) {
    if (Status status = link->listen(); !status.ok()) return status;
  }
  link->tend();
  return link;
}

Status Link::listen() {
  PrivateFd socket = new_socket();
  if (!socket) return no_descriptors();
  const Address address = address_of(settings_.socket);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) {
    return {Code::kAlreadyExists,
            fmt::format("packet_io memif: cannot make the socket {} ({}); name another, or be the end that connects to "
                        "it: role=client",
                        settings_.socket, std::strerror(errno))};
  }
  listener_ = std::move(socket);  // from here on its file goes with the link
  if (::listen(listener_.get(), kBacklog) != 0) return no_descriptors();
  return watch(listener_.get(), EPOLLIN | EPOLLET) ? Status() : not_watched();
}

Link::~Link() {
  if (!is_mine()) return;
  if (peer_) part("it is closed here", true, false);
  if (ungreeted_) keep_ungreeted(std::move(ungreeted_));
  if (listener_ && is_file(settings_.socket)) ::unlink(settings_.socket.c_str());
}

bool Link::watch(int fd, std::uint32_t how) noexcept {
  epoll_event event{};
  event.events = how;
  return ::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Link::ring_in(Nanos time) noexcept {
  itimerspec when{};
  when.it_value = {static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
  ::timerfd_settime(alarm_.get(), 0, &when, nullptr);
}

// The peer has this eventfd, too, and can make writing to it wait, which takes a full one. That is not written to: it
// is readable as it is.
void Link::wake_peer(const Way& way) noexcept {
  pollfd room{way.wakes_peer.get(), POLLOUT, 0};
  if (uncancelled::poll_now(&room, 1) != 1 || (room.revents & POLLOUT) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = uncancelled::write(way.wakes_peer.get(), &one, sizeof one);
}

void Link::hush() noexcept {
  if (!is_mine()) return;
  std::array<epoll_event, 8> events;
  uncancelled::epoll_wait_now(events_.get(), events.data(), static_cast<int>(events.size()));
}

void Link::tend() noexcept {
  if (!is_mine()) return;
  const NoCancellation whole;
  if (peer_) converse();
  if (talking() && steady_clock().now() >= since_ + kLongestHandshake) {
    part("it takes longer than a second to connect", true, true);
  }
  if (listener_) return accept();
  if (peer_) return;
  const Nanos now = steady_clock().now();
  now < dial_at_ ? ring_in(dial_at_ - now) : dial();
}

void Link::accept() noexcept {
  // Who is still talking keeps others waiting, as long as it may. Anybody can connect, again and again.
  for (int i = 0; i < kBacklog && !talking(); ++i) {
    PrivateFd socket(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket && errno != EAGAIN && errno != EWOULDBLOCK) {  // who waits there tells nobody so again
      if (!std::exchange(said_no_descriptor_, true)) {
        log(LogLevel::kWarning,
            fmt::format("memif {} cannot accept: {}; raise `ulimit -n`", settings_.socket, std::strerror(errno)));
      }
      return ring_in(kWithoutDescriptors);
    }
    if (!socket) return;
    said_no_descriptor_ = false;
    if (!peer_) {
      meet(std::move(socket));
      continue;
    }
    static_cast<void>(send_packet(socket.get(), encode(Disconnect{0, "another one is connected"})));
  }
  if (!talking()) ring_in(kLookAgain);
}

void Link::dial() noexcept {
  dial_at_ = steady_clock().now() + kDialEvery;
  ring_in(kDialEvery);
  // Who has not come to the last one will not come to another before, and would cost a descriptor each time.
  if (ungreeted_ && is_silent(ungreeted_.get()) && steady_clock().now() < since_ + kLongestUngreeted) return;
  ungreeted_.reset();
  PrivateFd socket = new_socket();
  const Address address = address_of(settings_.socket);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0) return;
  meet(std::move(socket));
}

void Link::meet(PrivateFd socket) noexcept {
  since_ = steady_clock().now();
  peer_ = std::move(socket);
  heard_ = false;
  if (const std::string why = refuse_user(peer_.get()); !why.empty()) return part(why, true, true);
  if (!watch(peer_.get(), EPOLLIN | EPOLLRDHUP)) return part(no_watch("it", errno).message(), true, true);
  ++generation_;
  handshake_ = Handshake::of(settings_.role, settings_.wire);
  ring_in(kLongestHandshake);
  if (const auto first = handshake_->begin(); first && !say(*first)) return part("it does not listen", false, true);
  converse();
}

bool Link::say(const Outgoing& what) noexcept {
  return send_packet(peer_.get(), encode(what.message), what.descriptor);
}

// Takes in what the peer has said so far.
void Link::converse() noexcept {
  for (std::size_t i = 0; i < kMessagesAtOnce; ++i) {
    std::array<std::byte, kMessageBytes + 1> bytes;  // one more, to see that a message is too long
    UniqueFd descriptor;
    bool lost = false;
    const auto got = receive_packet(peer_.get(), bytes, descriptor, &lost);
    if (!got && errno == ECONNRESET) continue;  // it left with a message of ours unread; its last may still be there
    if (!got) return;
    if (*got == 0) return part("it is gone", false, false);
    heard_ = true;
    const auto message = decode(std::span(bytes).first(*got));
    if (!message) return part("its message is no message", true, true);
    if (lost) return part("no descriptor is left for its memory or its eventfd; raise `ulimit -n`", true, true);
    const bool was_up = wire() != nullptr;
    const auto answer = handshake_->take(*message, std::move(descriptor));
    if (!answer) {
      const bool left = std::holds_alternative<Disconnect>(*message);
      return part(answer.error().message(), !left, !left || !was_up);
    }
    if (*answer && !say(**answer)) return part("it does not listen", false, true);
    if (was_up || wire() == nullptr) continue;
    since_ = steady_clock().now();
    const Wire& made = *wire();
    if (!watch(made.wakes_us.get(), EPOLLIN | EPOLLET) ||
        (made.urgent && !watch(made.urgent->wakes_us.get(), EPOLLIN | EPOLLET)))
      return part(no_watch("its eventfd", errno).message(), true, true);
    was_up_ = true;
    ring_in(kLookAgain);
  }
}

void Link::fail(const char* what) noexcept {
  const NoCancellation whole;
  part(what, true, true);
}

void Link::part(const std::string& why, bool tell, bool blame) noexcept {
  if (tell) static_cast<void>(say({Disconnect{0, why}}));
  const bool was_up = wire() != nullptr;
  if (was_up) {
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, wire()->wakes_us.get(), nullptr);
    if (wire()->urgent) ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, wire()->urgent->wakes_us.get(), nullptr);
  }
  if (peer_ && !heard_ && settings_.role == Role::kSlave) {
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, peer_.get(), nullptr);
    ungreeted_ = std::move(peer_);
  }
  peer_.reset();
  handshake_.reset();
  const Nanos now = steady_clock().now();
  if (was_up && now >= since_ + kSteady) said_.clear();
  if (std::exchange(said_, why) != why) {
    log(blame ? LogLevel::kWarning : LogLevel::kInfo, fmt::format("softroce: {}: the peer is let go: {}", name_, why));
  }
  dial_at_ = now + kDialEvery;
  ring_in(kLookAgain);
}

}  // namespace fairlead::soft::memif
