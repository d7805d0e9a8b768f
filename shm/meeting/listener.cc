#include "shm/meeting/listener.h"

#include <dirent.h>
#include <fmt/format.h>
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

#include "base/system/no_descriptor.h"
#include "base/system/no_watch.h"
#include "base/system/own_user.h"
#include "base/system/unix_packets.h"

namespace fairlead::shm {
namespace {

constexpr int kAcceptBatch = 16;
constexpr std::size_t kNameBytes = std::char_traits<char>::length("shm-0123456789abcdef");
constexpr int kMostSwept = 256;
constexpr std::string_view kUnnamed = ".new";
constexpr time_t kOldSeconds = 60;

/// Whoever was killed before its socket had its name.
void remove_if_old(const std::string& path) noexcept {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && ::time(nullptr) - info.st_mtime > kOldSeconds) ::unlink(path.c_str());
}

std::uint64_t random_number() noexcept {
  const Token token = random_token();
  std::uint64_t number = 0;
  std::memcpy(&number, token.data(), sizeof number);
  return number;
}

}  // namespace

// A name appears when its socket listens already, so that nobody's who is
/// about to listen is taken for one.
void sweep(const Place& place) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(place.directory.c_str()),
                                                 [](DIR* d) { return ::closedir(d); });
  if (open == nullptr) return;
  int looked_at = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name(entry->d_name);
    if (name.starts_with("shm-") && name.ends_with(kUnnamed))
      remove_if_old(fmt::format("{}/{}", place.directory, name));
    if (!name.starts_with("shm-") || name.size() != kNameBytes || ++looked_at > kMostSwept) continue;
    const std::string path = fmt::format("{}/{}", place.directory, name);
    if (const auto there = dial(path); !there && there.error().code() == Code::kNotFound) ::unlink(path.c_str());
  }
}

Result<PrivateFd> Listener::take_name(const std::string& path) {
  const std::string before = path + std::string(kUnnamed);
  auto socket = listen_at(before);
  if (!socket || std::rename(before.c_str(), path.c_str()) == 0) return socket;
  const int error = errno;
  ::unlink(before.c_str());
  return {Code::kUnavailable, fmt::format("cannot name the socket {}: {}", path, std::strerror(error))};
}

Result<Listener> Listener::open(const Place& place, const Clock& clock) {
  Listener listener(clock);
  listener.number_ = random_number();
  const std::string path = socket_path(place.directory, listener.number_);
  auto socket = take_name(path);
  if (!socket) return socket.error();
  listener.owner_ = ::getpid();
  listener.path_ = path;
  if (!listener.acceptor_.open(std::move(*socket))) {
    return no_watch(fmt::format("the socket {}", path), errno);
  }
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : clock_(other.clock_),
      path_(std::exchange(other.path_, {})),
      number_(other.number_),
      owner_(other.owner_),
      acceptor_(std::move(other.acceptor_)),
      unknown_(std::move(other.unknown_)),
      refused_(other.refused_) {}

Listener::~Listener() {
  if (!path_.empty() && owner_ == ::getpid()) ::unlink(path_.c_str());
}

void Listener::keep_name(const Place& place) noexcept {
  if (owner_ != ::getpid() || ::access(path_.c_str(), F_OK) == 0 || errno != ENOENT) return;
  const auto home = meeting_directory();  // which the place's may be in
  const Status made = make_own_directory(place.directory);
  auto socket = made.ok() ? take_name(path_) : Result<PrivateFd>(made);
  if (socket && acceptor_.replace(std::move(*socket))) return;
  const std::string why = socket ? no_watch("it", errno).message() : socket.error().message();
  if (socket) ::unlink(path_.c_str());  // nobody would be there
  log(LogLevel::kWarning,
      fmt::format("nobody can meet this process at {} any more, which was removed: {}", path_, why));
}

bool Listener::advance(const Claim& claim) noexcept {
  bool happened = accept_some();
  const Nanos now = clock_->now();
  const auto finished = [&](Unknown& unknown) {
    Verdict verdict = examine(unknown, claim);
    if (verdict == Verdict::kWait && now >= unknown.deadline) verdict = refuse("a process", "no greeting in time");
    if (verdict != Verdict::kWait && unknown.socket) empty(unknown.socket.get());
    return verdict != Verdict::kWait;
  };
  happened |= std::erase_if(unknown_, finished) > 0;
  return happened;
}

bool Listener::accept_some() noexcept {
  const Nanos now = clock_->now();
  for (int i = 0; i < kAcceptBatch; ++i) {
    std::optional<PrivateFd> socket = acceptor_.accept(now, [this](int error) {
      log(LogLevel::kWarning, fmt::format("cannot accept at {}: {}{}", path_, std::strerror(error),
                                          is_descriptor_limit(error) ? "; raise `ulimit -n`, or fs.file-max" : ""));
    });
    if (!socket) return i != 0;
    auto process = peer_process(socket->get());
    if (!process) {
      refuse("a process", process.error().message());
      continue;
    }
    if (unknown_.size() >= kMaxUnknown) {
      refuse("a process", "too many that said nothing");
      empty(unknown_.front().socket.get());
      unknown_.erase(unknown_.begin());
    }
    if (!acceptor_.watch(socket->get())) {
      refuse("a process", no_watch("it", errno).message());
      continue;
    }
    unknown_.push_back({std::move(*socket), std::move(*process), now + kGreetingTime});
  }
  return true;
}

Listener::Verdict Listener::examine(Unknown& unknown, const Claim& claim) noexcept {
  std::array<std::byte, kGreetingBytes + 1> bytes;
  UniqueFd segment;
  bool lost = false;
  const auto got = receive_packet(unknown.socket.get(), bytes, segment, &lost);
  const std::string who = fmt::format("process {}", unknown.process.id);
  if (!got) return errno == EAGAIN || errno == EWOULDBLOCK ? Verdict::kWait : refuse(who, "lost before its greeting");
  if (*got == 0) return refuse(who, "gone before its greeting");
  Guest guest;
  if (const auto reason = decode(std::span(bytes).first(*got), guest.greeting); !reason.empty()) {
    return refuse(who, reason);
  }
  if (lost) return refuse(who, "no descriptor is left for its memory; raise `ulimit -n`", LogLevel::kWarning);
  if (!segment) return refuse(who, "a greeting without memory");
  acceptor_.unwatch(unknown.socket.get());
  guest.socket = std::move(unknown.socket);
  guest.process = std::move(unknown.process);
  guest.segment = std::move(segment);
  return claim(guest) ? Verdict::kClaimed : refuse(who, "nobody waits for its token");
}

Listener::Verdict Listener::refuse(std::string_view who, std::string_view reason, LogLevel level) noexcept {
  ++refused_;
  log(level, fmt::format("{}: dropped {}: {}", path_, who, reason));
  return Verdict::kRefused;
}

std::optional<Nanos> Listener::deadline() const noexcept {
  std::optional<Nanos> first = acceptor_.paused_until();
  if (!unknown_.empty() && (!first || unknown_.front().deadline < *first)) first = unknown_.front().deadline;
  return first;
}

}  // namespace fairlead::shm
