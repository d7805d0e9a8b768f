#include "tcp_fallback/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system/no_descriptor.h"
#include "base/system/no_watch.h"
#include "tcp_fallback/socket.h"

namespace fairlead::tcp_fallback {
namespace {

constexpr int kAcceptBatch = 16;

}  // namespace

Result<Listener> Listener::open(const TcpConfig& config, const Clock& clock) {
  auto socket = listen_on(config);
  if (!socket) return socket.error();
  Listener listener(clock);
  listener.port_ = local_address(socket->get()).port();
  if (!listener.acceptor_.open(PrivateFd(std::move(*socket)))) {
    return no_watch(fmt::format("tcp port {}", listener.port_), errno);
  }
  return listener;
}

bool Listener::advance(const Claim& claim) noexcept {
  bool happened = accept_some();
  const Nanos now = clock_->now();
  const auto finished = [&](Unknown& unknown) {
    Verdict verdict = examine(unknown, claim);
    if (verdict == Verdict::kWait && now >= unknown.deadline) verdict = refuse(unknown, "no greeting in time");
    return verdict != Verdict::kWait;
  };
  happened |= std::erase_if(unknown_, finished) > 0;
  return happened;
}

bool Listener::accept_some() noexcept {
  const Nanos now = clock_->now();
  for (int i = 0; i < kAcceptBatch; ++i) {
    std::optional<PrivateFd> connection = acceptor_.accept(now, [this](int error) {
      log(LogLevel::kWarning, fmt::format("cannot accept on tcp port {}: {}{}", port_, std::strerror(error),
                                          is_descriptor_limit(error) ? "; raise `ulimit -n`, or fs.file-max" : ""));
    });
    if (!connection) return i != 0;
    if (unknown_.size() >= kMaxUnknown) {
      refuse(unknown_.front(), "too many unknown connections");
      unknown_.erase(unknown_.begin());
    }
    Unknown unknown{std::move(*connection), now + kGreetingTime};
    if (acceptor_.watch(unknown.connection.get())) {
      unknown_.push_back(std::move(unknown));
    } else {
      refuse(unknown, no_watch("it", errno).message(), LogLevel::kWarning);
    }
  }
  return true;
}

Listener::Verdict Listener::examine(Unknown& unknown, const Claim& claim) noexcept {
  while (unknown.received < unknown.bytes.size()) {
    const ssize_t got = ::recv(unknown.connection.get(), unknown.bytes.data() + unknown.received,
                               unknown.bytes.size() - unknown.received, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Verdict::kWait;
    if (got <= 0) return refuse(unknown, "closed before its greeting");
    unknown.received += static_cast<std::size_t>(got);
  }
  Greeting greeting;
  if (const auto reason = decode(std::span<const std::byte, kGreetingBytes>(unknown.bytes), greeting);
      !reason.empty()) {
    return refuse(unknown, reason);
  }
  acceptor_.unwatch(unknown.connection.get());
  return claim(greeting, unknown.connection) ? Verdict::kClaimed : refuse(unknown, "nobody waits for its token");
}

Listener::Verdict Listener::refuse(const Unknown& unknown, std::string_view reason, LogLevel level) noexcept {
  ++refused_;
  if (log_enabled(level)) {
    log(level, fmt::format("tcp port {}: dropped a connection from {}: {}", port_,
                           peer_address(unknown.connection.get()).to_string(), reason));
  }
  return Verdict::kRefused;
}

std::optional<Nanos> Listener::deadline() const noexcept {
  std::optional<Nanos> first = acceptor_.paused_until();
  if (!unknown_.empty() && (!first || unknown_.front().deadline < *first)) first = unknown_.front().deadline;
  return first;
}

}  // namespace fairlead::tcp_fallback
