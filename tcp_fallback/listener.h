// The transport's listening socket, and the connections that have not yet said which path they are for.
//
// Anyone can connect, so little is given before a known token arrives: 32 bytes of buffer, kGreetingTime, and one of
// kMaxUnknown places (the oldest connection makes room for a new one).
// Threads: the driving thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/private_fd.h"
#include "fairlead/config.h"
#include "fairlead/log.h"
#include "fairlead/status.h"
#include "tcp_fallback/frame.h"
#include "transport/acceptor.h"

namespace fairlead::tcp_fallback {

class Listener {
 public:
  static constexpr Nanos kGreetingTime = 5 * kSecond;
  static constexpr std::size_t kMaxUnknown = 64;

  /// Takes over a connection whose greeting is well-formed, or returns false: nobody waits for that token.
  using Claim = std::function<bool(const Greeting& greeting, PrivateFd& connection)>;

  /// `clock` outlives the listener.
  static Result<Listener> open(const TcpConfig& config, const Clock& clock = steady_clock());

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Readable while advance() has something to do; for poll and epoll.
  [[nodiscard]] int wait_fd() const noexcept { return acceptor_.wait_fd(); }
  /// Accepts, reads greetings, drops those that are late or wrong. Returns whether anything happened.
  bool advance(const Claim& claim) noexcept;
  /// When advance() must be called even if wait_fd() stays silent.
  [[nodiscard]] std::optional<Nanos> deadline() const noexcept;
  /// Connections that were dropped because of their greeting, or for want of one.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }

 private:
  struct Unknown {
    PrivateFd connection;
    Nanos deadline = 0;
    GreetingBytes bytes{};
    std::size_t received = 0;
  };
  enum class Verdict : std::uint8_t { kWait, kClaimed, kRefused };

  bool accept_some() noexcept;
  Verdict examine(Unknown& unknown, const Claim& claim) noexcept;
  Verdict refuse(const Unknown& unknown, std::string_view reason, LogLevel level = LogLevel::kInfo) noexcept;

  explicit Listener(const Clock& clock) : clock_(&clock) {}

  const Clock* clock_;
  datapath::Acceptor acceptor_;
  std::uint16_t port_ = 0;
  std::vector<Unknown> unknown_;  // oldest first
  std::uint64_t refused_ = 0;
};

}  // namespace fairlead::tcp_fallback
