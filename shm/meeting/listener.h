// An endpoint's meeting place: a socket in the place's directory, and those who have not yet said which path they are
// for.
//
// Only processes of this user come so far, and little is given before a known token arrives: one of kMaxUnknown places
// (the oldest makes room for a new one), for kGreetingTime. Whoever is another user's is dropped when it is accepted.
// The socket's name goes with the listener. That of a process that was killed stays until somebody sweeps.
// Threads: the driving thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/private_fd.h"
#include "fairlead/log.h"
#include "fairlead/status.h"
#include "shm/meeting/greeting.h"
#include "shm/meeting/place.h"
#include "shm/meeting/socket.h"
#include "transport/acceptor.h"

namespace fairlead::shm {

/// Who came, with a well-formed greeting.
struct Guest {
  PrivateFd socket;
  PeerProcess process;
  Greeting greeting;
  UniqueFd segment;
};

/// Removes the names under which nobody listens any more. It knocks at every socket there is, so not too often.
void sweep(const Place& place);

class Listener {
 public:
  static constexpr Nanos kGreetingTime = 5 * kSecond;
  static constexpr std::size_t kMaxUnknown = 64;

  /// Takes the guest over and says so, or nobody waits for that token.
  using Claim = std::function<bool(Guest& guest)>;

  /// `clock` outlives the listener. Errors: as listen_at().
  static Result<Listener> open(const Place& place, const Clock& clock);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Before somebody is told to come: the name may be gone with its directory, where the system sweeps what a user has
  /// who is logged in no more. Then there is another socket of that name.
  void keep_name(const Place& place) noexcept;
  /// Readable while advance() has something to do; for poll and epoll.
  [[nodiscard]] int wait_fd() const noexcept { return acceptor_.wait_fd(); }
  /// Accepts, reads greetings, drops those that are late or wrong. Returns whether anything happened.
  bool advance(const Claim& claim) noexcept;
  /// When advance() must be called even if wait_fd() stays silent.
  [[nodiscard]] std::optional<Nanos> deadline() const noexcept;
  /// Those who were dropped because of who they are or what they said, or for want of it.
  [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }

 private:
  struct Unknown {
    PrivateFd socket;
    PeerProcess process;
    Nanos deadline = 0;
  };
  enum class Verdict : std::uint8_t { kWait, kClaimed, kRefused };

  explicit Listener(const Clock& clock) : clock_(&clock) {}

  static Result<PrivateFd> take_name(const std::string& path);

  bool accept_some() noexcept;
  Verdict examine(Unknown& unknown, const Claim& claim) noexcept;
  Verdict refuse(std::string_view who, std::string_view reason, LogLevel level = LogLevel::kInfo) noexcept;

  const Clock* clock_;
  std::string path_;
  std::uint64_t number_ = 0;
  pid_t owner_ = 0;  // who removes the name: a forked child does not
  datapath::Acceptor acceptor_;
  std::vector<Unknown> unknown_;  // oldest first
  std::uint64_t refused_ = 0;
};

}  // namespace fairlead::shm
