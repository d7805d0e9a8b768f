#include "shm/meeting/listener.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "fairlead/log.h"

namespace fairlead::shm {
namespace {

constexpr int kAcceptBatch = 16;
constexpr Nanos kPause = 100 * kMillisecond;
constexpr std::size_t kNameBytes = std::char_traits<char>::length("shm-0123456789abcdef");
constexpr int kMostSwept = 256;
constexpr std::string_view kUnnamed = ".new";
constexpr time_t kOldSeconds = 60;

bool watch(int epoll, int fd) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Whoever was killed before its socket had its name.
void remove_if_old(const std::string& path) noexcept {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && ::time(nullptr) - info.st_mtime > kOldSeconds) ::unlink(path.c_str());
}

/// Names under which nobody listens any more. A name appears when its socket listens already, so that nobody's who is
/// about to listen is taken for one.
void sweep(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), [](DIR* d) { return ::closedir(d); });
  if (open == nullptr) return;
  int looked_at = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name(entry->d_name);
    if (name.starts_with("shm-") && name.ends_with(kUnnamed)) remove_if_old(fmt::format("{}/{}", directory, name));
    if (!name.starts_with("shm-") || name.size() != kNameBytes || ++looked_at > kMostSwept) continue;
    const std::string path = fmt::format("{}/{}", directory, name);
    if (const auto there = dial(path); !there && there.error().code() == Code::kNotFound) ::unlink(path.c_str());
  }
}

std::uint64_t random_number() noexcept {
  const Token token = random_token();
  std::uint64_t number = 0;
  std::memcpy(&number, token.data(), sizeof number);
  return number;
}

}  // namespace

Result<Listener> Listener::open(const Place& place, const Clock& clock) {
  sweep(place.directory);
  Listener listener(clock);
  listener.number_ = random_number();
  const std::string path = socket_path(place.directory, listener.number_);
  const std::string before = path + std::string(kUnnamed);
  auto socket = listen_at(before);
  if (!socket) return socket.error();
  listener.socket_ = std::move(*socket);
  listener.owner_ = ::getpid();
  if (std::rename(before.c_str(), path.c_str()) != 0) {
    ::unlink(before.c_str());
    return {Code::kUnavailable, fmt::format("cannot name the socket {}: {}", path, std::strerror(errno))};
  }
  listener.path_ = path;
  listener.watch_ = PrivateFd(UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
  if (!listener.watch_ || !watch(listener.watch_.get(), listener.socket_.get())) {
    return {Code::kResourceExhausted,
            fmt::format("cannot watch the socket {}: {}; raise `ulimit -n`", path, std::strerror(errno))};
  }
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : clock_(other.clock_),
      path_(std::exchange(other.path_, {})),
      number_(other.number_),
      owner_(other.owner_),
      socket_(std::move(other.socket_)),
      watch_(std::move(other.watch_)),
      unknown_(std::move(other.unknown_)),
      refused_(other.refused_),
      paused_until_(other.paused_until_) {}

Listener::~Listener() {
  if (!path_.empty() && owner_ == ::getpid()) ::unlink(path_.c_str());
}

bool Listener::advance(const Claim& claim) noexcept {
  bool happened = accept_some();
  const Nanos now = clock_->now();
  const auto finished = [&](Unknown& unknown) {
    Verdict verdict = examine(unknown, claim);
    if (verdict == Verdict::kWait && now >= unknown.deadline) verdict = refuse("a process", "no greeting in time");
    return verdict != Verdict::kWait;
  };
  happened |= std::erase_if(unknown_, finished) > 0;
  return happened;
}

bool Listener::accept_some() noexcept {
  const Nanos now = clock_->now();
  if (paused_until_) {
    if (now < *paused_until_) return false;
    paused_until_.reset();
    watch(watch_.get(), socket_.get());
  }
  bool happened = false;
  for (int i = 0; i < kAcceptBatch; ++i) {
    PrivateFd socket(UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause(errno);
      return happened;  // other errors belong to a connection that is gone already (accept(2))
    }
    happened = true;
    auto process = peer_process(socket.get());
    if (!process) {
      refuse("a process", process.error().message());
      continue;
    }
    if (unknown_.size() >= kMaxUnknown) {
      refuse("a process", "too many that said nothing");
      unknown_.erase(unknown_.begin());
    }
    watch(watch_.get(), socket.get());
    unknown_.push_back({std::move(socket), std::move(*process), now + kGreetingTime});
  }
  return happened;
}

// The socket would stay readable, and whoever sleeps on wait_fd() would spin.
void Listener::pause(int error) noexcept {
  log(LogLevel::kWarning, fmt::format("cannot accept at {}: {}; raise `ulimit -n`", path_, std::strerror(error)));
  ::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  paused_until_ = clock_->now() + kPause;
}

Listener::Verdict Listener::examine(Unknown& unknown, const Claim& claim) noexcept {
  std::array<std::byte, kGreetingBytes + 1> bytes;
  UniqueFd segment;
  const auto got = receive_packet(unknown.socket.get(), bytes, segment);
  const std::string who = fmt::format("process {}", unknown.process.id);
  if (!got) return errno == EAGAIN || errno == EWOULDBLOCK ? Verdict::kWait : refuse(who, "lost before its greeting");
  if (*got == 0) return refuse(who, "gone before its greeting");
  Guest guest;
  if (const auto reason = decode(std::span(bytes).first(*got), guest.greeting); !reason.empty()) {
    return refuse(who, reason);
  }
  if (!segment) return refuse(who, "a greeting without memory");
  ::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, unknown.socket.get(), nullptr);
  guest.socket = std::move(unknown.socket);
  guest.process = std::move(unknown.process);
  guest.segment = std::move(segment);
  return claim(guest) ? Verdict::kClaimed : refuse(who, "nobody waits for its token");
}

Listener::Verdict Listener::refuse(std::string_view who, std::string_view reason) noexcept {
  ++refused_;
  log(LogLevel::kInfo, fmt::format("{}: dropped {}: {}", path_, who, reason));
  return Verdict::kRefused;
}

std::optional<Nanos> Listener::deadline() const noexcept {
  std::optional<Nanos> first = paused_until_;
  if (!unknown_.empty() && (!first || unknown_.front().deadline < *first)) first = unknown_.front().deadline;
  return first;
}

}  // namespace fairlead::shm
